/** GPipe: all forwards, then all backwards. */

import { B, F } from "../action.ts";
import {
  type ClosedForm,
  defineSchedule,
  linear,
  looped,
  perWorker,
  type ScheduleOptions,
  type UniformCosts,
} from "../define.ts";

/** Holds for any tF and tB, D and N: T = (N + D - 1)(tF + tB), and N activations everywhere. */
function gpipeForm(
  { workers, microBatches }: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  return {
    idle: (workers - 1) * (forward + backward),
    peakActivations: perWorker(workers, () => microBatches),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * GPipe (Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
 * Parallelism", section 2.2): stage s on worker s, all forwards, then all backwards.
 */
export const gpipe = defineSchedule({
  name: "gpipe",
  reads: [],
  summary: "all forwards, then all backwards",
  closedForm: gpipeForm,
  place: linear,
  *order(worker, { microBatches }) {
    for (let m = 0; m < microBatches; m++) yield F(worker, m);
    for (let m = 0; m < microBatches; m++) yield B(worker, m);
  },
});

/** The idle time holds for N >= D and any tF and tB; with fewer micro-batches it is a bound. */
function loopedBfsForm(
  { workers, microBatches, chunks = 2 }: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  const idle = (workers - 1) * (forward + backward) / chunks;
  return {
    ...(microBatches >= workers ? { idle } : { idleAtLeast: idle }),
    peakActivations: perWorker(workers, () => microBatches),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Looped breadth-first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"): every chunk serves all micro-batches before the next,
 * so that sharded weights are gathered once in each direction.
 */
export const loopedBfs = defineSchedule({
  name: "looped-bfs",
  reads: ["chunks"],
  summary: "gpipe with several chunks on each worker: little idle time, all activations",
  closedForm: loopedBfsForm,
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
