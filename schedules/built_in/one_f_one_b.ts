/**
 * 1F1B (DAPPLE), interleaved, over slices of the sequence (Seq1F1B, SlimPipe) and asynchronous: enough
 * forwards to fill the pipeline, then one of each.
 */

import type { Action, ActionKind } from "../action.ts";
import {
  defineSchedule,
  inTurn,
  linear,
  looped,
  makerOf,
  type Place,
  requireFull,
  requireOption,
  type ScheduleOptions,
  type ScheduleRule,
  sliceOf,
  slicesIn,
} from "../define.ts";

/**
 * The order of a worker: the forwards of its warm-up, D-1-s and the other slices of the first
 * micro-batch, then pairs of F and B, then backwards.
 */
export function oneFOneBOrder(worker: number, options: ScheduleOptions, slices = 1) {
  const { workers, microBatches } = options, all = microBatches * slices;
  const warmUp = Math.min(all, workers - 1 - worker + slices - 1);
  return inTurn(all, warmUp, makerOf(worker, slices));
}

/** Defines a schedule in the order of 1F1B. */
const defineOneFOneB = (definition: Omit<ScheduleRule, "place" | "order">) =>
  defineSchedule({
    ...definition,
    place: (options) => ({ ...linear(options), slices: slicesIn(definition, options) }),
    order: (worker, options) => oneFOneBOrder(worker, options, slicesIn(definition, options)),
  });

/**
 * 1F1B: the order of PipeDream with a flush at the end of the step (Narayanan et al. 2021,
 * "Memory-Efficient Pipeline-Parallel DNN Training", section 3.2). DAPPLE (Fan et al. 2021, "DAPPLE: A
 * Pipelined Data Parallel Approach for Training Large Models", section 3) found the same order by
 * scheduling backwards early.
 */
export const oneFOneB = defineOneFOneB({
  name: "1f1b",
  aliases: ["dapple"],
  reads: [],
  summary: "one forward, one backward in turn; D - s activations on worker s",
});

/**
 * Seq1F1B (Sun et al. 2024, "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language
 * Model Training", section 3.2): the unit of 1F1B is a slice of a micro-batch's sequence. Forwards of
 * slices run first slice first, backwards last slice first.
 */
export const seq1f1b = defineOneFOneB({
  name: "seq1f1b",
  reads: ["slices"],
  summary: "1f1b over slices of the sequence: shorter bubbles, fewer activations",
});

/**
 * PipeDream (Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training",
 * sections 3.2 and 3.3): an optimizer step after every backward. A forward uses the newest weights;
 * its backward uses the same version, which is kept until then.
 */
export const pipeDream = defineOneFOneB({
  name: "pipedream",
  reads: [],
  summary: "asynchronous: no flush, an update for each micro-batch, D - s weight versions",
  updates: "every-backward",
  // Time and activations are those of a step that starts with an empty pipeline and drains it, such
  // as before a checkpoint. Between two drains there is no idle time, and worker s keeps a version of
  // its weights for each of the D - s micro-batches in flight.
  weightVersions: (worker, { workers }) => workers - worker,
});

/**
 * PipeDream-2BW (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section
 * 3.1): an optimizer step for every N >= D micro-batches, from gradients that are one step old; two
 * versions of the weights are enough.
 */
export const pipeDream2bw = defineOneFOneB({
  name: "pipedream-2bw",
  reads: [],
  summary: "asynchronous: no flush, an update for N micro-batches, two weight versions",
  updates: "double-buffered",
  weightVersions: () => 2,
  check: requireFull,
});

/** The number of rounds: whole groups with one for each worker; 1 if there are fewer. */
function roundsOf(workers: number, count: number): number {
  return Math.max(1, Math.floor(count / workers));
}

/**
 * The rounds in which slices pass the chunks of a worker: `together` micro-batches in `count` rounds,
 * which run `size` slices through a chunk at a time, `slices` of each micro-batch. With one slice, P
 * micro-batches pass a chunk before the next if P divides N, all if N < P.
 */
export function roundsOfSlices({ workers, microBatches }: ScheduleOptions, slices = 1) {
  if (slices >= workers) {
    const count = roundsOf(workers, slices), size = slices / count;
    return { together: 1, count, size, slices: size };
  }
  const together = microBatches / roundsOf(workers, microBatches * slices);
  return { together, count: 1, size: together * slices, slices };
}

/**
 * Stage s on worker s mod P, for orders of rounds.
 *
 * @throws {RangeError} if there is only one chunk, or if the rounds would differ in size.
 */
export function placeRounds(name: string, options: ScheduleOptions, slices = 1): Place {
  const { workers, microBatches, chunks = 2 } = options;
  requireOption(name, "chunks", chunks, chunks >= 2, "at least 2");
  const [option, count, units] = slices >= workers
    ? ["slices", slices, slices] as const
    : ["microBatches", microBatches, microBatches * slices] as const;
  const rounds = roundsOf(workers, units);
  const must = `a multiple of their ${rounds} rounds, as many as fill the ${workers} workers`;
  requireOption(name, option, count, count % rounds === 0, must);
  return { ...looped(options), slices };
}

/**
 * Makes the k-th action of a kind of a worker with several chunks. Backwards take the last round
 * first, in it the last chunk, and of each micro-batch the last slice.
 */
export function chunkedAction(
  kind: ActionKind,
  worker: number,
  k: number,
  options: ScheduleOptions,
  slices = 1,
): Action {
  const { workers, chunks = 2 } = options, isForward = kind === "F";
  const { together, count, size, slices: each } = roundsOfSlices(options, slices);
  const turns = count * chunks, at = k % (turns * size), place = at % size, nth = place % each;
  const turn = isForward ? Math.floor(at / size) : turns - 1 - Math.floor(at / size);
  const microBatch = Math.floor(k / (turns * size)) * together + Math.floor(place / each);
  const stage = turn % chunks * workers + worker;
  const slice = Math.floor(turn / chunks) * size + (isForward ? nth : each - 1 - nth);
  return sliceOf({ kind, stage, microBatch }, slice, slices);
}

/** Defines a schedule of 1F1B with several chunks on each worker. */
const defineChunked = (definition: Pick<ScheduleRule, "name" | "reads" | "summary">) =>
  defineSchedule({
    ...definition,
    place: (options) => placeRounds(definition.name, options, slicesIn(definition, options)),
    order(worker, options) {
      const { workers, microBatches, chunks = 2 } = options;
      const slices = slicesIn(definition, options), all = microBatches * slices * chunks;
      const { count, size, slices: each } = roundsOfSlices(options, slices);
      // Forwards before the first backward: all of one micro-batch, and two for each later worker.
      const first = (count * chunks - 1) * size + each - 1 + 2 * (workers - 1 - worker);
      const make = (kind: ActionKind, k: number) => chunkedAction(kind, worker, k, options, slices);
      return inTurn(all, Math.min(all, first), make);
    },
  });

/**
 * Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
 * Clusters Using Megatron-LM", section 2.2.2): chunk c of worker r is stage cD + r. If D does not
 * divide N, the rounds are larger, as in PyTorch's Interleaved1F1B.
 */
export const interleaved = defineChunked({
  name: "interleaved",
  reads: ["chunks"],
  summary: "1f1b with several chunks on each worker: less idle time, more messages",
});

/**
 * SlimPipe (Li et al. 2025, "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for
 * Long-Context LLM Training"): the unit of interleaved 1F1B is a slice, so that little more than one
 * micro-batch is live. Only the order is the paper's: slices are of one size, and no attention moves
 * to other workers. With fewer slices than workers several micro-batches share a round; with one
 * slice it is `interleaved`.
 */
export const slimPipe = defineChunked({
  name: "slimpipe",
  reads: ["chunks", "slices"],
  summary:
    "interleaved over slices of the sequence: little more than one micro-batch's activations",
});
