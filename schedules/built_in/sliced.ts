/** Schedules over slices of the sequence: Seq1F1B, its zero-bubble form, SlimPipe and TeraPipe. */

import { type Action, type ActionKind, B, F, sliced } from "../action.ts";
import {
  defineSchedule,
  formOf,
  inTurn,
  linear,
  type Place,
  placeRounds,
  requireFull,
  roundsOf,
  type ScheduleOptions,
} from "../define.ts";
import { zeroBubbleOrder } from "./zero_bubble.ts";

/** An action of a slice; of the whole micro-batch if there is one slice. */
function sliceOf(action: Action, slice: number, { slices = 1 }: ScheduleOptions): Action {
  return slices === 1 ? action : sliced(action, slice, slices);
}

/**
 * Returns a function that makes the k-th action of a kind of a stage. Forwards take the slices of a
 * micro-batch in order, backwards the last slice first.
 */
function makerOf(stage: number, options: ScheduleOptions) {
  const { slices = 1 } = options;
  return (kind: ActionKind, k: number): Action => {
    const slice = kind === "F" ? k % slices : slices - 1 - k % slices;
    return sliceOf({ kind, stage, microBatch: Math.floor(k / slices) }, slice, options);
  };
}

/** One stage for each worker, and micro-batches cut into slices. */
function placeSliced(options: ScheduleOptions): Place {
  return { ...linear(options), slices: options.slices ?? 1 };
}

/** Forwards of worker s before its first backward: those of 1F1B and the other slices of the first. */
function warmUpOf(worker: number, { workers, microBatches, slices = 1 }: ScheduleOptions): number {
  return Math.min(microBatches * slices, workers - 1 - worker + slices - 1);
}

/**
 * Seq1F1B (Sun et al. 2024, "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language
 * Model Training", section 3.2): the unit of 1F1B is a slice of a micro-batch's sequence. Forwards of
 * slices run first slice first, backwards last slice first.
 */
export const seq1f1b = defineSchedule({
  name: "seq1f1b",
  reads: ["slices"],
  summary: "1f1b over slices of the sequence: shorter bubbles, fewer activations",
  // For any tF and tB if all slices of a micro-batch take the same time.
  closedForm(options, { forward, backward }) {
    const { workers, microBatches, slices = 1 } = options;
    const live = (worker: number) => Math.min(microBatches * slices, warmUpOf(worker, options) + 1);
    return formOf(workers, {
      idle: (workers - 1) * (forward + backward) / slices,
      peak: (worker) => live(worker) / slices,
    });
  },
  place: placeSliced,
  order(worker, options) {
    const { microBatches, slices = 1 } = options;
    return inTurn(microBatches * slices, warmUpOf(worker, options), makerOf(worker, options));
  },
});

/**
 * Seq1F1B (Sun et al. 2024) with the split backwards of ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline
 * Parallelism", section 2.1): the unit of ZB-H1 is a slice. The slices of one micro-batch are live
 * together, as backwards begin with the last one.
 */
export const seqZeroBubble = defineSchedule({
  name: "seq1f1b-zb",
  reads: ["slices"],
  summary: "zb-h1 over slices of the sequence: a third of seq1f1b's bubbles",
  // For any durations and N >= D if all slices of a micro-batch take the same time: D slices and the
  // others of one micro-batch are live on every worker.
  closedForm: ({ workers, slices = 1 }, { forward, input, weight }) =>
    formOf(workers, {
      idle: (workers - 1) * Math.max(forward, input, forward + input - weight) / slices,
      peak: () => (workers + slices - 1) / slices,
    }),
  check: requireFull,
  place: placeSliced,
  order(worker, options) {
    const { workers, microBatches, slices = 1 } = options, held = workers + slices - 1;
    const limits = { warmUp: held - worker, held, count: microBatches * slices };
    return zeroBubbleOrder(limits, makerOf(worker, options));
  },
});

/**
 * The rounds in which slices pass the chunks of a worker: `together` micro-batches in `count` rounds,
 * which run `size` slices through a chunk at a time, `slices` of each micro-batch.
 */
function roundsOfSlices({ workers, microBatches, slices = 1 }: ScheduleOptions) {
  if (slices >= workers) {
    const count = roundsOf(workers, slices), size = slices / count;
    return { together: 1, count, size, slices: size };
  }
  const together = microBatches / roundsOf(workers, microBatches * slices);
  return { together, count: 1, size: together * slices, slices };
}

/** Forwards before the first backward: all of one micro-batch, and two more for each later worker. */
function slimPipeWarmUp(worker: number, options: ScheduleOptions): number {
  const { workers, microBatches, chunks = 2, slices = 1 } = options;
  const { count, size, slices: each } = roundsOfSlices(options);
  const first = (count * chunks - 1) * size + each - 1;
  return Math.min(microBatches * slices * chunks, first + 2 * (workers - 1 - worker));
}

/** The k-th forward of a worker. */
function slimPipeForward(worker: number, k: number, options: ScheduleOptions): Action {
  const { workers, chunks = 2, slices = 1 } = options;
  const { together, count, size } = roundsOfSlices(options);
  const units = count * size * chunks, at = k % units, round = Math.floor(at / (size * chunks));
  const unit = round * size + at % size, turn = Math.floor(at / size) % chunks;
  const microBatch = Math.floor(k / units) * together + Math.floor(unit / slices);
  return sliceOf(F(turn * workers + worker, microBatch), unit % slices, options);
}

/** The k-th backward: last round first, in it last chunk first, of each micro-batch last slice first. */
function slimPipeBackward(worker: number, k: number, options: ScheduleOptions): Action {
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
 * SlimPipe (Li et al. 2025, "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for
 * Long-Context LLM Training"): the unit of interleaved 1F1B is a slice, so that little more than one
 * micro-batch is live. Only the order is the paper's: slices are of one size, and no attention moves
 * to other workers. With fewer slices than workers several micro-batches share a round; with one
 * slice it is `interleaved`.
 */
export const slimPipe = defineSchedule({
  name: "slimpipe",
  reads: ["chunks", "slices"],
  summary:
    "interleaved over slices of the sequence: little more than one micro-batch's activations",
  // For any tF and tB if all slices of a micro-batch take the same time: the idle time of interleaved
  // 1F1B over the number of slices. If S >= P, worker r holds one micro-batch and 2(P-1-r) slices of
  // a chunk.
  closedForm(options, { forward, backward }) {
    const { workers, microBatches, chunks = 2, slices = 1 } = options, units = slices * chunks;
    const gaps = workers - 1 + (chunks - 1) * Math.max(0, workers - microBatches * slices);
    return formOf(workers, {
      idle: gaps * (forward + backward) / units,
      peak: (r) => Math.min(microBatches * units, slimPipeWarmUp(r, options) + 1) / units,
    });
  },
  place(options) {
    const { workers, microBatches, slices = 1 } = options;
    const shared = slices >= workers
      ? { option: "slices", count: slices, rounds: roundsOf(workers, slices) }
      : {
        option: "microBatches",
        count: microBatches,
        rounds: roundsOf(workers, microBatches * slices),
      };
    return { ...placeRounds("slimpipe", options, shared), slices };
  },
  order(worker, options) {
    const { microBatches, chunks = 2, slices = 1 } = options;
    return inTurn(
      microBatches * slices * chunks,
      slimPipeWarmUp(worker, options),
      (kind, k) => (kind === "F" ? slimPipeForward : slimPipeBackward)(worker, k, options),
    );
  },
});

/**
 * TeraPipe (Li et al. 2021, "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale
 * Language Models", section 3): all forwards, slice by slice, then all backwards. Slices are of one
 * size here; the paper chooses them to take the same time.
 */
export const teraPipe = defineSchedule({
  name: "terapipe",
  reads: ["slices"],
  summary: "gpipe over slices of the sequence: shorter bubbles, all activations",
  // For any tF and tB if all slices of a micro-batch take the same time.
  closedForm: ({ workers, microBatches, slices = 1 }, { forward, backward }) =>
    formOf(workers, {
      idle: (workers - 1) * (forward + backward) / slices,
      peak: () => microBatches,
    }),
  place: placeSliced,
  order(worker, options) {
    const { microBatches, slices = 1 } = options, all = microBatches * slices;
    return inTurn(all, all, makerOf(worker, options));
  },
});
