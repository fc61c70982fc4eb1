/** ZB-H1 and ZB-H2, plain and interleaved: split backwards, with W at times that would be idle. */

import { type Action, F, I, W } from "../action.ts";
import {
  defineSchedule,
  formOf,
  linear,
  perRound,
  placeRounds,
  requireFull,
  requireOption,
  virtualStep,
} from "../define.ts";

/**
 * ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.1) on the chunks of interleaved
 * 1F1B, in the order of PyTorch's InterleavedZeroBubble: a forward and an input backward in turn, and
 * from the r-th of these pairs on a weight backward of the pair r before it, on worker r.
 */
export const interleavedZeroBubble = defineSchedule({
  name: "interleaved-zb",
  reads: ["chunks"],
  summary: "interleaved with split backward: fewer bubbles, D activations on every worker",
  // The idle time holds for any durations and N >= D: that of ZB-H1 over the number of chunks; at
  // equal durations, the time until the last worker has its first input. There are D activations if
  // D divides N.
  closedForm(options, { forward, input, weight }) {
    const { workers, microBatches, chunks = 2 } = options;
    const idle = (workers - 1) * Math.max(forward, input, forward + input - weight) / chunks;
    const live = Math.min(microBatches * chunks, (chunks - 1) * perRound(options) + workers);
    return formOf(workers, {
      ...microBatches >= workers ? { idle } : { idleAtLeast: idle },
      peak: () => live / chunks,
    });
  },
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
 * The order of a worker: `warmUp` forwards; then in turn I, a W if the worker holds `held`
 * activations, and F; after the last forward I and W in turn, then the remaining W.
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
 * ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.1): a third of the bubbles of
 * 1F1B; every worker holds the activations of the first worker of 1F1B.
 */
export const zeroBubbleH1 = defineSchedule({
  name: "zb-h1",
  reads: [],
  summary: "split backward: a third of 1f1b's bubbles, D activations on every worker",
  // For any durations and N >= D. The idle time of the paper, (D-1)(tF + max(0, tI - tW)), ignores
  // that gradients leave a stage at most every tI, which matters only if tI > tF and tW > tF.
  closedForm: ({ workers }, { forward, input, weight }) =>
    formOf(workers, {
      idle: (workers - 1) * Math.max(forward, input, forward + input - weight),
      peak: () => workers,
    }),
  place(options) {
    requireFull("zb-h1", options);
    return linear(options);
  },
  order: (worker, { workers, microBatches }) =>
    zeroBubbleOrder(worker, { warmUp: workers - worker, held: workers, microBatches }),
});

/**
 * ZB-H2 (the same paper, section 2.2): bubbles only at the two ends of a step, for twice the
 * activations.
 */
export const zeroBubbleH2 = defineSchedule({
  name: "zb-h2",
  reads: [],
  summary: "split backward: no bubbles between first and last action, 2D - 1 activations",
  // For any durations and N >= 2D-1. At equal durations a worker is never idle between its first and
  // last action. The workers still start one after the other, which costs (D-1)tF, so H2 gains over
  // H1 only if the next step may start without a barrier.
  closedForm: ({ workers }, { forward, input, weight }) =>
    formOf(workers, {
      idle: (workers - 1) * Math.max(forward, input - forward, forward + input - 2 * weight),
      ...forward === input && input === weight && { idleLocal: 0 },
      peak: () => 2 * workers - 1,
    }),
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
