/** TeraPipe: GPipe over slices of the sequence. */

import { B, F } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { backwardOf, forwardOf, placeSliced } from "./units.ts";

/** Holds for any tF and tB where all slices of a micro-batch take equally long. */
export function teraPipeForm(
  { workers, microBatches, slices = 1 }: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  return {
    idle: (workers - 1) * (forward + backward) / slices,
    peakActivations: perWorker(workers, () => microBatches),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Li et al. 2021, "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale Language
 * Models", section 3: all forwards, slice by slice, then all backwards. Slices are of one size here;
 * the paper's are chosen such that they take equally long.
 */
export const teraPipe = defineSchedule({
  name: "terapipe",
  reads: ["slices"],
  summary: "gpipe over slices of the sequence: shorter bubbles, all activations",
  closedForm: teraPipeForm,
  place: placeSliced,
  *order(worker, options) {
    const { microBatches, slices = 1 } = options;
    for (let k = 0; k < microBatches * slices; k++) yield forwardOf(worker, k, F, options);
    for (let k = 0; k < microBatches * slices; k++) yield backwardOf(worker, k, B, options);
  },
});
