/** ZB-H1 over slices of the sequence. */

import { type Action, F, I, W } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { requireOption } from "../../definition/require_option.ts";
import { backwardOf, forwardOf, placeSliced } from "./units.ts";

/**
 * Holds for any durations and N >= D where all slices of a micro-batch take equally long: D slices and
 * the others of one micro-batch are live on every worker.
 */
export function seqZeroBubbleForm(
  { workers, slices = 1 }: ScheduleOptions,
  { forward, input, weight }: UniformCosts,
): ClosedForm {
  return {
    idle: (workers - 1) * Math.max(forward, input, forward + input - weight) / slices,
    peakActivations: perWorker(workers, () => (workers + slices - 1) / slices),
    weights: perWorker(workers, () => 1),
  };
}

function* order(worker: number, options: ScheduleOptions): Iterable<Action> {
  const { workers, microBatches, slices = 1 } = options;
  const all = microBatches * slices, held = workers + slices - 1;
  let [forwards, inputs, weights] = [0, 0, 0];
  while (forwards < held - worker) yield forwardOf(worker, forwards++, F, options);
  while (forwards < all) {
    yield backwardOf(worker, inputs++, I, options);
    if (forwards - weights >= held) yield backwardOf(worker, weights++, W, options);
    yield forwardOf(worker, forwards++, F, options);
  }
  while (inputs < all) {
    yield backwardOf(worker, inputs++, I, options);
    yield backwardOf(worker, weights++, W, options);
  }
  while (weights < all) yield backwardOf(worker, weights++, W, options);
}

/**
 * Seq1F1B (Sun et al. 2024) with the split backwards of ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline
 * Parallelism", section 2.1): the unit of ZB-H1 is a slice, and the slices of one micro-batch are live
 * together, as backwards begin with the last.
 */
export const seqZeroBubble = defineSchedule({
  name: "seq1f1b-zb",
  reads: ["slices"],
  summary: "zb-h1 over slices of the sequence: a third of seq1f1b's bubbles",
  closedForm: seqZeroBubbleForm,
  place(options) {
    const { workers, microBatches } = options;
    const must = `at least the number of workers, ${workers}`;
    requireOption("seq1f1b-zb", "microBatches", microBatches, microBatches >= workers, must);
    return placeSliced(options);
  },
  order,
});
