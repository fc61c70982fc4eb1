/** GPipe and its looped form: all forwards, then all backwards. */

import { B, F } from "../action.ts";
import { defineSchedule, formOf, linear, looped } from "../define.ts";

/**
 * GPipe (Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
 * Parallelism", section 2.2): stage s on worker s, all forwards, then all backwards.
 */
export const gpipe = defineSchedule({
  name: "gpipe",
  reads: [],
  summary: "all forwards, then all backwards",
  // For any tF, tB, D and N: T = (N + D - 1)(tF + tB).
  closedForm: ({ workers, microBatches }, { forward, backward }) =>
    formOf(workers, { idle: (workers - 1) * (forward + backward), peak: () => microBatches }),
  place: linear,
  *order(worker, { microBatches }) {
    for (let m = 0; m < microBatches; m++) yield F(worker, m);
    for (let m = 0; m < microBatches; m++) yield B(worker, m);
  },
});

/**
 * Looped breadth-first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"): every chunk serves
 * all micro-batches before the next, so that sharded weights are gathered once in each direction.
 */
export const loopedBfs = defineSchedule({
  name: "looped-bfs",
  reads: ["chunks"],
  summary: "gpipe with several chunks on each worker: little idle time, all activations",
  // The idle time holds for N >= D and any tF and tB; with fewer micro-batches it is a lower bound.
  closedForm({ workers, microBatches, chunks = 2 }, { forward, backward }) {
    const idle = (workers - 1) * (forward + backward) / chunks;
    const peak = () => microBatches;
    return formOf(workers, { ...microBatches >= workers ? { idle } : { idleAtLeast: idle }, peak });
  },
  place: looped,
  *order(worker, { workers, microBatches, chunks = 2 }) {
    for (let c = 0; c < chunks; c++) {
      for (let m = 0; m < microBatches; m++) yield F(c * workers + worker, m);
    }
    for (let c = chunks - 1; c >= 0; c--) {
      for (let m = 0; m < microBatches; m++) yield B(c * workers + worker, m);
    }
  },
});
