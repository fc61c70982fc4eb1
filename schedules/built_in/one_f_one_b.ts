/** 1F1B (DAPPLE), interleaved and asynchronous: enough forwards to fill the pipeline, then one of each. */

import type { Action, ActionKind } from "../action.ts";
import {
  chunkedAction,
  type ClosedForm,
  defineSchedule,
  formOf,
  inTurn,
  linear,
  perRound,
  placeRounds,
  requireFull,
  type ScheduleOptions,
  type UniformCosts,
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
  order(worker, options) {
    const { workers, microBatches, chunks = 2 } = options, total = microBatches * chunks;
    const fill = 2 * (workers - 1 - worker) + (chunks - 1) * perRound(options);
    const make = (kind: ActionKind, k: number) => chunkedAction(kind, worker, k, options);
    return inTurn(total, Math.min(total, fill), make);
  },
});

/** The order of worker s: min(N, D-1-s) forwards, then pairs of F and B, then backwards. */
export function oneFOneBOrder(
  worker: number,
  { workers, microBatches }: ScheduleOptions,
): Iterable<Action> {
  const warmUp = Math.min(microBatches, workers - 1 - worker);
  return inTurn(microBatches, warmUp, (kind, microBatch) => ({ kind, stage: worker, microBatch }));
}

/** For any tF, tB, D and N: the time of GPipe with min(N, D - s) activations on worker s. */
function oneFOneBForm(
  { workers, microBatches }: ScheduleOptions,
  { forward, backward }: UniformCosts,
  weights = (_worker: number) => 1,
): ClosedForm {
  return formOf(workers, {
    idle: (workers - 1) * (forward + backward),
    peak: (s) => Math.min(microBatches, workers - s),
    weights,
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
  closedForm: (options, costs) => oneFOneBForm(options, costs),
  place: linear,
  order: oneFOneBOrder,
});

/**
 * PipeDream (Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training",
 * sections 3.2 and 3.3): an optimizer step after every backward. A forward uses the newest weights;
 * its backward uses the same version, which is kept until then.
 */
export const pipeDream = defineSchedule({
  name: "pipedream",
  reads: [],
  summary: "asynchronous: no flush, an update for each micro-batch, D - s weight versions",
  updates: "every-backward",
  weightVersions: (worker, { workers }) => workers - worker,
  // Time and activations are those of a step that starts with an empty pipeline and drains it, such
  // as before a checkpoint. Between two drains there is no idle time, and worker s keeps a version of
  // its weights for each of the D - s micro-batches in flight.
  closedForm: (options, costs) => oneFOneBForm(options, costs, (s) => options.workers - s),
  place: linear,
  order: oneFOneBOrder,
});

/**
 * PipeDream-2BW (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section
 * 3.1): an optimizer step for every N >= D micro-batches, from gradients that are one step old; two
 * versions of the weights are enough.
 */
export const pipeDream2bw = defineSchedule({
  name: "pipedream-2bw",
  reads: [],
  summary: "asynchronous: no flush, an update for N micro-batches, two weight versions",
  updates: "double-buffered",
  weightVersions: () => 2,
  closedForm: (options, costs) => oneFOneBForm(options, costs, () => 2),
  check: requireFull,
  place: linear,
  order: oneFOneBOrder,
});
