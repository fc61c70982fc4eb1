/** Eager 1F1B: 1F1B with twice the warm-up, which hides the messages between stages. */

import { B, F } from "../action.ts";
import { defineSchedule, linear } from "../define.ts";

/** Worker s starts with 2(D-1-s) forwards, then runs one forward and one backward in turn. */
export const eagerOneFOneB = defineSchedule({
  name: "eager-1f1b",
  reads: [],
  summary: "1f1b with twice the warm-up: hides messages, 2(D - s) - 1 activations on worker s",
  place: linear,
  *order(worker, { workers, microBatches }) {
    const warmUp = Math.min(microBatches, 2 * (workers - 1 - worker));
    for (let m = 0; m < microBatches + warmUp; m++) {
      if (m < microBatches) yield F(worker, m);
      if (m >= warmUp) yield B(worker, m - warmUp);
    }
  },
});
