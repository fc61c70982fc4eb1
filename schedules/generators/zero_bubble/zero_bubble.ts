/** ZB-H1 and ZB-H2: backwards in two parts, the weight part where the worker would be idle. */

import { type Action, F, I, W } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { linear } from "../../definition/placements.ts";
import { requireOption } from "../../definition/require_option.ts";

/**
 * The order of a worker: `warmUp` forwards; then I, a W where as many activations are held as may
 * be, and F in turn; after the last forward I and W in turn, then the rest of W.
 */
function* zeroBubbleOrder(
  worker: number,
  { warmUp, held, microBatches }: { warmUp: number; held: number; microBatches: number },
): Iterable<Action> {
  let [forwards, inputs, weights] = [0, 0, 0];
  while (forwards < Math.min(warmUp, microBatches)) yield F(worker, forwards++);
  while (forwards < microBatches) {
    yield I(worker, inputs++);
    if (forwards - weights >= held) yield W(worker, weights++);
    yield F(worker, forwards++);
  }
  while (inputs < microBatches) yield* [I(worker, inputs++), W(worker, weights++)];
  while (weights < microBatches) yield W(worker, weights++);
}

/**
 * Holds for any durations and N >= D: D activations on every worker. The idle time of the paper,
 * (D-1)(tF + max(0, tI - tW)), leaves out that the gradients of neighbours cannot follow each other
 * faster than tI, which counts only where tI > tF and tW > tF.
 */
export function zeroBubbleH1Form(
  { workers }: ScheduleOptions,
  { forward, input, weight }: UniformCosts,
): ClosedForm {
  return {
    idle: (workers - 1) * Math.max(forward, input, forward + input - weight),
    peakActivations: perWorker(workers, () => workers),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Holds for any durations and N >= 2D-1: 2D-1 activations on every worker. At equal durations
 * there is no idle time between a worker's first and last action; that the workers start one
 * after the other still costs (D-1)tF, so H2 gains over H1 only where the next step may start
 * without a barrier.
 */
export function zeroBubbleH2Form(
  { workers }: ScheduleOptions,
  { forward, input, weight }: UniformCosts,
): ClosedForm {
  return {
    idle: (workers - 1) * Math.max(forward, input - forward, forward + input - 2 * weight),
    ...(forward === input && input === weight ? { idleLocal: 0 } : {}),
    peakActivations: perWorker(workers, () => 2 * workers - 1),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.1): a third of 1F1B's bubbles,
 * its first worker's activations on all.
 */
export const zeroBubbleH1 = defineSchedule({
  name: "zb-h1",
  reads: [],
  summary: "split backward: a third of 1f1b's bubbles, D activations on every worker",
  closedForm: zeroBubbleH1Form,
  place(options) {
    const { workers, microBatches } = options;
    const must = `at least the number of workers, ${workers}`;
    requireOption("zb-h1", "microBatches", microBatches, microBatches >= workers, must);
    return linear(options);
  },
  order: (worker, { workers, microBatches }) =>
    zeroBubbleOrder(worker, { warmUp: workers - worker, held: workers, microBatches }),
});

/**
 * ZB-H2 (the same paper, section 2.2): no bubbles but those at the two ends, for twice the
 * activations.
 */
export const zeroBubbleH2 = defineSchedule({
  name: "zb-h2",
  reads: [],
  summary: "split backward: no bubbles between first and last action, 2D - 1 activations",
  closedForm: zeroBubbleH2Form,
  place(options) {
    const { workers, microBatches } = options;
    const least = 2 * workers - 1;
    const must = `at least ${least} for ${workers} workers`;
    requireOption("zb-h2", "microBatches", microBatches, microBatches >= least, must);
    return linear(options);
  },
  order: (worker, { workers, microBatches }) =>
    zeroBubbleOrder(worker, {
      warmUp: 2 * (workers - worker) - 1,
      held: 2 * workers - 1,
      microBatches,
    }),
});
