/**
 * Several strategies in turn, as none is best.
 *
 * @module
 */

import { delay } from "./delay.ts";
import { fifo } from "./fifo.ts";
import { pct } from "./pct.ts";
import { pos } from "./pos.ts";
import { random } from "./random.ts";
import type { Strategy } from "./strategy.ts";

/**
 * Plain order once, then the others in turn, a run each.
 *
 * @param others one or more. Default: `random`, `pos`, `pct(3)` and `delay(2)`.
 *
 * @example
 * ```ts
 * import { portfolio } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = portfolio();
 * const names = [0, 1, 2, 3, 4, 5].map((run) => {
 *   strategy.begin({ seed: run, run, expectedSteps: 100 });
 *   return strategy.name;
 * });
 * assert.deepEqual(names, ["fifo", "random", "pos", "pct(3)", "delay(2)", "random"]);
 * ```
 */
export function portfolio(
  others: readonly Strategy[] = [random(), pos(), pct(3), delay(2)],
): Strategy {
  let current: Strategy = fifo();
  return {
    get name() {
      return current.name;
    },
    begin(start) {
      current = start.run === 0 ? fifo() : others[(start.run - 1) % others.length]!;
      return current.begin(start);
    },
    choose: (candidates, step, state, timer) => current.choose(candidates, step, state, timer),
    get deviations() {
      return current.deviations;
    },
    end: (state) => current.end?.(state),
  };
}
