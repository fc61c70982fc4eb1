/** 1F1B with a flush (DAPPLE): as few forwards as fill the pipe, then one backward each. */

import { type Action, B, F } from "../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../definition/closed_form.ts";
import { defineSchedule } from "../definition/define_schedule.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { linear } from "../definition/placements.ts";

/** The order of worker s: min(N, D-1-s) forwards, then pairs of F and B, then backwards. */
export function* oneFOneBOrder(
  worker: number,
  { workers, microBatches }: ScheduleOptions,
): Iterable<Action> {
  const warmUp = Math.min(microBatches, workers - 1 - worker);
  for (let m = 0; m < microBatches + warmUp; m++) {
    if (m < microBatches) yield F(worker, m);
    if (m >= warmUp) yield B(worker, m - warmUp);
  }
}

/** Holds for any tF and tB, D and N: GPipe's time with min(N, D - s) activations on worker s. */
export function oneFOneBForm(
  { workers, microBatches }: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  return {
    idle: (workers - 1) * (forward + backward),
    peakActivations: perWorker(workers, (s) => Math.min(microBatches, workers - s)),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * 1F1B: the order of PipeDream with a flush at the end of the step (Narayanan et al. 2021,
 * "Memory-Efficient Pipeline-Parallel DNN Training", section 3.2). DAPPLE (Fan et al. 2021, "DAPPLE: A
 * Pipelined Data Parallel Approach for Training Large Models", section 3) found the same order by
 * scheduling backwards early.
 */
export const oneFOneB = defineSchedule({
  name: "1f1b",
  aliases: ["dapple"],
  reads: [],
  summary: "one forward, one backward in turn; D - s activations on worker s",
  closedForm: oneFOneBForm,
  place: linear,
  order: oneFOneBOrder,
});
