/** ZB-H1 and ZB-H2: backwards in two parts, the weight part where the worker would be idle. */

import { type Action, F, I, W } from "../action.ts";
import {
  type ClosedForm,
  defineSchedule,
  linear,
  perRound,
  perWorker,
  placeRounds,
  requireOption,
  type ScheduleOptions,
  type UniformCosts,
  virtualStep,
} from "../define.ts";

/**
 * Holds for any durations and N >= D: the idle time of ZB-H1 over the number of chunks, which at
 * equal durations is what passes until the last worker has its first input. The activations are D
 * where D divides N.
 */
function interleavedZeroBubbleForm(
  options: ScheduleOptions,
  { forward, input, weight }: UniformCosts,
): ClosedForm {
  const { workers, microBatches, chunks = 2 } = options;
  const idle = (workers - 1) * Math.max(forward, input, forward + input - weight) / chunks;
  const live = Math.min(microBatches * chunks, (chunks - 1) * perRound(options) + workers);
  return {
    ...(microBatches >= workers ? { idle } : { idleAtLeast: idle }),
    peakActivations: perWorker(workers, () => live / chunks),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.1) on the chunks of interleaved
 * 1F1B, as PyTorch's InterleavedZeroBubble orders it: a forward and an input backward in turn, and
 * from the r-th of these pairs on a weight backward of the pair r before it, r being the worker.
 */
export const interleavedZeroBubble = defineSchedule({
  name: "interleaved-zb",
  reads: ["chunks"],
  summary: "interleaved with split backward: fewer bubbles, D activations on every worker",
  closedForm: interleavedZeroBubbleForm,
  place: (options) => placeRounds("interleaved-zb", options),
  *order(worker, options): Iterable<Action> {
    const { workers, microBatches, chunks = 2 } = options;
    const total = microBatches * chunks;
    const fill = workers - 1 - worker + (chunks - 1) * perRound(options);
    const warmUp = Math.min(total, fill), late = warmUp + worker;
    const backward = (k: number) => {
      const { turn, microBatch } = virtualStep(k, options);
      return [(chunks - 1 - turn) * workers + worker, microBatch] as const;
    };
    for (let k = 0; k < total + late; k++) {
      if (k < total) {
        const { turn, microBatch } = virtualStep(k, options);
        yield F(turn * workers + worker, microBatch);
      }
      if (k >= warmUp && k < total + warmUp) yield I(...backward(k - warmUp));
      if (k >= late) yield W(...backward(k - late));
    }
  },
});

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
function zeroBubbleH1Form(
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
function zeroBubbleH2Form(
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
