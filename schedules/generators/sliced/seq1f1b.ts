/** Seq1F1B: 1F1B over slices of the sequence, so that fewer activations are live and bubbles shorter. */

import { type Action, B, F } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { backwardOf, forwardOf, placeSliced } from "./units.ts";

/** Forwards that worker s runs before its first backward: 1F1B's, and the other slices of the first. */
function warmUpOf(worker: number, { workers, microBatches, slices = 1 }: ScheduleOptions): number {
  return Math.min(microBatches * slices, workers - 1 - worker + slices - 1);
}

function* order(worker: number, options: ScheduleOptions): Iterable<Action> {
  const { microBatches, slices = 1 } = options;
  const all = microBatches * slices, warmUp = warmUpOf(worker, options);
  for (let k = 0; k < all + warmUp; k++) {
    if (k < all) yield forwardOf(worker, k, F, options);
    if (k >= warmUp) yield backwardOf(worker, k - warmUp, B, options);
  }
}

/** Holds for any tF and tB where all slices of a micro-batch take equally long. */
function seqForm(options: ScheduleOptions, { forward, backward }: UniformCosts): ClosedForm {
  const { workers, microBatches, slices = 1 } = options;
  const live = (worker: number) => Math.min(microBatches * slices, warmUpOf(worker, options) + 1);
  return {
    idle: (workers - 1) * (forward + backward) / slices,
    peakActivations: perWorker(workers, (worker) => live(worker) / slices),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Sun et al. 2024, "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model
 * Training", section 3.2: the unit of 1F1B is a slice of a micro-batch's sequence. Forwards of slices
 * run first slice first, backwards last slice first.
 */
export const seq1f1b = defineSchedule({
  name: "seq1f1b",
  reads: ["slices"],
  summary: "1f1b over slices of the sequence: shorter bubbles, fewer activations",
  closedForm: seqForm,
  place: placeSliced,
  order,
});
