/** Looped breadth-first: GPipe with several chunks on each worker, one chunk at a time. */

import { B, F } from "../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../definition/closed_form.ts";
import { defineSchedule } from "../definition/define_schedule.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { looped } from "../definition/placements.ts";

/** The idle time holds for N >= D and any tF and tB; with fewer micro-batches it is a bound. */
export function loopedBfsForm(
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
