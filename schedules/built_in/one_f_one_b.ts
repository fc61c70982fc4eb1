/** 1F1B (DAPPLE) and interleaved 1F1B: enough forwards to fill the pipeline, then one of each. */

import { type Action, B, F } from "../action.ts";
import {
  type ClosedForm,
  defineSchedule,
  formOf,
  linear,
  perRound,
  placeRounds,
  type ScheduleOptions,
  type UniformCosts,
  virtualStep,
} from "../define.ts";

/**
 * Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
 * Clusters Using Megatron-LM", section 2.2.2): chunk c of worker r is stage cD + r. If D does not
 * divide N, the rounds are larger, as in PyTorch's Interleaved1F1B.
 */
export const interleaved = defineSchedule({
  name: "interleaved",
  reads: ["chunks"],
  summary: "1f1b with several chunks on each worker: less idle time, more messages",
  // For any tF and tB. Each worker holds two chunks fewer than the one before. With fewer
  // micro-batches than workers, each missing one costs a forward and a backward of all but one chunk.
  closedForm(options, { forward, backward }) {
    const { workers, microBatches, chunks = 2 } = options;
    const gaps = workers - 1 + (chunks - 1) * Math.max(0, workers - microBatches);
    const live = (r: number) =>
      Math.min(microBatches * chunks, (chunks - 1) * perRound(options) + 2 * (workers - r) - 1);
    return formOf(workers, {
      idle: gaps * (forward + backward) / chunks,
      peak: (r) => live(r) / chunks,
    });
  },
  place: (options) => placeRounds("interleaved", options),
  *order(worker, options): Iterable<Action> {
    const { workers, microBatches, chunks = 2 } = options;
    const total = microBatches * chunks;
    const fill = 2 * (workers - 1 - worker) + (chunks - 1) * perRound(options);
    const warmUp = Math.min(total, fill);
    for (let k = 0; k < total + warmUp; k++) {
      if (k < total) {
        const { turn, microBatch } = virtualStep(k, options);
        yield F(turn * workers + worker, microBatch);
      }
      if (k >= warmUp) {
        const { turn, microBatch } = virtualStep(k - warmUp, options);
        yield B((chunks - 1 - turn) * workers + worker, microBatch);
      }
    }
  },
});

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

/** For any tF, tB, D and N: the time of GPipe with min(N, D - s) activations on worker s. */
export function oneFOneBForm(
  { workers, microBatches }: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  return formOf(workers, {
    idle: (workers - 1) * (forward + backward),
    peak: (s) => Math.min(microBatches, workers - s),
  });
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
