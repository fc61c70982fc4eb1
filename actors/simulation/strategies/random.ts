/**
 * A random walk.
 *
 * @module
 */

import { substream } from "../../runtime/world/random.ts";
import { type Strategy, WAIT } from "./strategy.ts";

/**
 * Each candidate with the same probability, at each step; a timer that is near counts as one.
 *
 * @example
 * ```ts
 * import { random } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = random();
 * const candidates = Array.from({ length: 8 }, (_, seq) => (
 *   { actor: "a", lane: "data", from: `sender-${seq}`, type: "Note", seq, nth: 0 } as const
 * ));
 * const play = () => {
 *   strategy.begin({ seed: 1, run: 0, expectedSteps: 8 });
 *   return candidates.map((_, step) => strategy.choose(candidates, step, () => 0));
 * };
 * assert.deepEqual(play(), play());
 * assert.ok(new Set(play()).size > 2);
 * ```
 */
export function random(): Strategy {
  let next: () => number;
  return {
    name: "random",
    begin({ seed }) {
      next = substream(seed, "random");
      return true;
    },
    choose({ length }, _step, _state, timer) {
      if (timer !== "near") return length === 1 ? 0 : Math.floor(next() * length);
      const choice = Math.floor(next() * (length + 1));
      return choice === length ? WAIT : choice;
    },
  };
}
