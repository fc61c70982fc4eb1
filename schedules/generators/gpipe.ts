/** GPipe: all forwards, then all backwards. */

import { B, F } from "../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../definition/closed_form.ts";
import { defineSchedule } from "../definition/define_schedule.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { linear } from "../definition/placements.ts";

/** Holds for any tF and tB, D and N: T = (N + D - 1)(tF + tB), and N activations everywhere. */
export function gpipeForm(
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
