/** TeraPipe: GPipe over slices of the sequence. */

import { type Action, B, F, I, sliced, W } from "../action.ts";
import {
  type ClosedForm,
  defineSchedule,
  linear,
  perWorker,
  type Place,
  placeRounds,
  requireOption,
  roundsOf,
  type ScheduleOptions,
  type UniformCosts,
} from "../define.ts";

/** Makes a plain action: `F`, `B`, `I` or `W`. */
type Make = (stage: number, microBatch: number) => Action;

/** An action of a slice; of the micro-batch where that is not cut. */
function sliceOf(
  action: Action,
  slice: number,
  { slices = 1 }: ScheduleOptions,
): Action {
  return slices === 1 ? action : sliced(action, slice);
}

/** The k-th forward of a stage: slices come in order. */
function forwardOf(stage: number, k: number, make: Make, options: ScheduleOptions): Action {
  const { slices = 1 } = options;
  return sliceOf(make(stage, Math.floor(k / slices)), k % slices, options);
}

/** The k-th backward of a stage, of a kind: the last slice of a micro-batch comes first. */
function backwardOf(stage: number, k: number, make: Make, options: ScheduleOptions): Action {
  const { slices = 1 } = options;
  return sliceOf(make(stage, Math.floor(k / slices)), slices - 1 - k % slices, options);
}

/** One stage for each worker, and micro-batches cut into slices. */
function placeSliced(options: ScheduleOptions): Place {
  return { ...linear(options), slices: options.slices ?? 1 };
}

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

/**
 * Holds for any durations and N >= D where all slices of a micro-batch take equally long: D slices and
 * the others of one micro-batch are live on every worker.
 */
function seqZeroBubbleForm(
  { workers, slices = 1 }: ScheduleOptions,
  { forward, input, weight }: UniformCosts,
): ClosedForm {
  return {
    idle: (workers - 1) * Math.max(forward, input, forward + input - weight) / slices,
    peakActivations: perWorker(workers, () => (workers + slices - 1) / slices),
    weights: perWorker(workers, () => 1),
  };
}

function* orderOfSeq1f1bZb(worker: number, options: ScheduleOptions): Iterable<Action> {
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
  order: orderOfSeq1f1bZb,
});

/** How slices run through the chunks of a worker. */
interface Rounds {
  /** Micro-batches that run together: as many as fill the pipe; one where its slices do. */
  readonly together: number;
  /** Rounds that these take. */
  readonly count: number;
  /** Slices that run through one chunk before the next has its turn. */
  readonly size: number;
  /** Of these, the slices of each micro-batch. */
  readonly slices: number;
}

function roundsOfSlices({ workers, microBatches, slices = 1 }: ScheduleOptions): Rounds {
  if (slices >= workers) {
    const count = roundsOf(workers, slices), size = slices / count;
    return { together: 1, count, size, slices: size };
  }
  const together = microBatches / roundsOf(workers, microBatches * slices);
  return { together, count: 1, size: together * slices, slices };
}

/** The forwards before the first backward: all of one micro-batch, and two more for each worker on. */
function warmUpOfSlimpipe(worker: number, options: ScheduleOptions): number {
  const { workers, microBatches, chunks = 2, slices = 1 } = options;
  const { count, size, slices: each } = roundsOfSlices(options);
  const first = (count * chunks - 1) * size + each - 1;
  return Math.min(microBatches * slices * chunks, first + 2 * (workers - 1 - worker));
}

/** The k-th forward of a worker. */
function forwardOfSlimpipe(worker: number, k: number, options: ScheduleOptions): Action {
  const { workers, chunks = 2, slices = 1 } = options;
  const { together, count, size } = roundsOfSlices(options);
  const units = count * size * chunks, at = k % units, round = Math.floor(at / (size * chunks));
  const unit = round * size + at % size, turn = Math.floor(at / size) % chunks;
  const microBatch = Math.floor(k / units) * together + Math.floor(unit / slices);
  return sliceOf(F(turn * workers + worker, microBatch), unit % slices, options);
}

/** The k-th backward: the last round first, in it the last chunk, of each micro-batch the last slice. */
function backwardOfSlimpipe(worker: number, k: number, options: ScheduleOptions): Action {
  const { workers, chunks = 2 } = options;
  const { together, count, size, slices: each } = roundsOfSlices(options);
  const units = count * size * chunks, at = k % units;
  const round = count - 1 - Math.floor(at / (size * chunks)), place = at % size;
  const turn = chunks - 1 - Math.floor(at / size) % chunks;
  const microBatch = Math.floor(k / units) * together + Math.floor(place / each);
  const slice = round * size + each - 1 - place % each;
  return sliceOf(B(turn * workers + worker, microBatch), slice, options);
}

/**
 * Holds for any tF and tB where all slices of a micro-batch take equally long: the idle time of
 * interleaved 1F1B over the number of slices. Where these fill the pipe, S >= P, worker r holds one
 * micro-batch and 2(P-1-r) slices of a chunk.
 */
function slimPipeForm(
  options: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  const { workers, microBatches, chunks = 2, slices = 1 } = options, units = slices * chunks;
  const gaps = workers - 1 + (chunks - 1) * Math.max(0, workers - microBatches * slices);
  const live = (r: number) => Math.min(microBatches * units, warmUpOfSlimpipe(r, options) + 1);
  return {
    idle: gaps * (forward + backward) / units,
    peakActivations: perWorker(workers, (r) => live(r) / units),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Li et al. 2025, "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM
 * Training": the unit of interleaved 1F1B is a slice, so that little more than one micro-batch is live.
 * Only the order is the paper's: slices are as they are, and no attention is handed to other workers.
 * With fewer slices than workers several micro-batches share a round, and with one it is `interleaved`.
 */
export const slimPipe = defineSchedule({
  name: "slimpipe",
  reads: ["chunks", "slices"],
  summary:
    "interleaved over slices of the sequence: little more than one micro-batch's activations",
  closedForm: slimPipeForm,
  place(options) {
    const { workers, microBatches, slices = 1 } = options;
    const what = slices >= workers
      ? { option: "slices", count: slices, rounds: roundsOf(workers, slices) }
      : {
        option: "microBatches",
        count: microBatches,
        rounds: roundsOf(workers, microBatches * slices),
      };
    return { ...placeRounds("slimpipe", options, what), slices };
  },
  *order(worker, options): Iterable<Action> {
    const { microBatches, chunks = 2, slices = 1 } = options;
    const all = microBatches * slices * chunks, warmUp = warmUpOfSlimpipe(worker, options);
    for (let k = 0; k < all + warmUp; k++) {
      if (k < all) yield forwardOfSlimpipe(worker, k, options);
      if (k >= warmUp) yield backwardOfSlimpipe(worker, k - warmUp, options);
    }
  },
});

/** Holds for any tF and tB where all slices of a micro-batch take equally long. */
function teraPipeForm(
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
