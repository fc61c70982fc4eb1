/**
 * Partial order sampling.
 *
 * @module
 */

import { substream } from "../../runtime/world/random.ts";
import { highest } from "./pct.ts";
import { type Strategy, WAIT } from "./strategy.ts";

/**
 * A random priority for each waiting message; the highest goes first, and those that race with it
 * (they wait for the same actor, so their order matters) draw again. It samples the partial
 * orders of a run more evenly than a random walk, and needs no parameter. A timer that is near has
 * a priority of its own, which races with nothing until it fires.
 *
 * Yuan, Yang, Gu: Partial Order Aware Concurrency Sampling, CAV 2018, section 4.
 *
 * @example
 * ```ts
 * import { pos } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = pos();
 * assert.ok(strategy.begin({ seed: 1, run: 0, expectedSteps: 10 }));
 * const candidate = { actor: "a", lane: "data", from: "b", type: "Note", seq: 0, nth: 0 } as const;
 * assert.equal(strategy.choose([candidate], 0, () => 0), 0);
 * ```
 */
export function pos(): Strategy {
  const priorities = new Map<number, number>();
  let next: () => number;
  const priorityOf = (seq: number) => priorities.getOrInsertComputed(seq, next);
  return {
    name: "pos",
    begin({ seed }) {
      next = substream(seed, "pos");
      priorities.clear();
      return true;
    },
    choose(candidates, _step, _state, timer) {
      const index = highest(candidates, ({ seq }) => priorityOf(seq));
      const { actor, seq } = candidates[index]!;
      if (timer === "near" && priorityOf(TIMER) > priorityOf(seq)) {
        priorities.delete(TIMER);
        return WAIT;
      }
      for (const other of candidates) if (other.actor === actor) priorities.delete(other.seq);
      return index;
    },
  };
}

/** Stands for the next timer among the messages. */
const TIMER = -1;
