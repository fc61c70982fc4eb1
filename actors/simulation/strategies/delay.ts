/**
 * Delay-bounded scheduling.
 *
 * @module
 */

import { substream } from "../../runtime/world/random.ts";
import { LateOrder } from "./late.ts";
import { addWait, checkPositive, type Deviation, type Strategy, WAIT } from "./strategy.ts";

/**
 * Plain order but for `delays` moments: there the message whose turn it is goes behind all others,
 * and behind the timers that are near.
 * Few delays find most bugs, and what they find is close to plain order, so easy to read.
 *
 * Emmi, Qadeer, Rakamarić: Delay-Bounded Scheduling, POPL 2011, section 2. The moments are drawn
 * here, where the paper tries all.
 *
 * @param delays how many times a message is put back, 1 or more.
 * @throws {RangeError} when `delays` is not a positive integer.
 *
 * @example
 * ```ts
 * import { delay } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = delay(1);
 * strategy.begin({ seed: 1, run: 0, expectedSteps: 1 });
 * const message = { actor: "a", lane: "data", type: "Note", nth: 0 } as const;
 * const both = [{ ...message, from: "b", seq: 0 }, { ...message, from: "c", seq: 1 }];
 * assert.equal(strategy.choose(both, 0, () => 0), 1);
 * assert.equal(strategy.choose(both, 1, () => 0), 1);
 * assert.equal(strategy.choose([both[0]!], 2, () => 0), 0);
 * ```
 */
export function delay(delays: number): Strategy {
  checkPositive("delay", "delays", delays);
  const order = new LateOrder();
  let moments: number[], choices: number, deviations: Deviation[] = [];
  return {
    name: `delay(${delays})`,
    get deviations() {
      return deviations;
    },
    begin({ seed, expectedSteps }) {
      const next = substream(seed, "delay");
      order.clear();
      deviations = [];
      choices = 0;
      moments = Array.from({ length: delays }, () => Math.floor(next() * expectedSteps));
      return true;
    },
    choose(candidates, step, _state, timer) {
      const choice = choices++;
      for (const _ of moments.filter((moment) => moment === choice)) {
        const late = order.first(candidates);
        order.put(candidates[late]!);
        deviations.push({ step, late });
      }
      const first = order.first(candidates);
      if (timer !== "near" || !order.isLate(candidates[first]!)) return first;
      addWait(deviations, step);
      return WAIT;
    },
  };
}
