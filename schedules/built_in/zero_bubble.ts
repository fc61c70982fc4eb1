/** ZB-H1 (also interleaved and over slices), ZB-H2 and ZB-V: split backwards, with W at times that would be idle. */

import { type Action, F, I, W } from "../action.ts";
import {
  defineSchedule,
  linear,
  makerOf,
  requireFull,
  requireOption,
  type ScheduleOptions,
  type ScheduleRule,
  slicesIn,
  wave,
} from "../define.ts";
import { chunkedAction, placeRounds, roundsOfSlices } from "./one_f_one_b.ts";

/**
 * ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.1) on the chunks of interleaved
 * 1F1B, in the order of PyTorch's InterleavedZeroBubble: a forward and an input backward in turn, and
 * from the r-th of these pairs on a weight backward of the pair r before it, on worker r.
 */
export const interleavedZeroBubble = defineSchedule({
  name: "interleaved-zb",
  reads: ["chunks"],
  summary: "interleaved with split backward: fewer bubbles, D activations on every worker",
  place: (options) => placeRounds("interleaved-zb", options),
  *order(worker, options): Iterable<Action> {
    const { workers, microBatches, chunks = 2 } = options, total = microBatches * chunks;
    const fill = workers - 1 - worker + (chunks - 1) * roundsOfSlices(options).size;
    const warmUp = Math.min(total, fill), late = warmUp + worker;
    for (let k = 0; k < total + late; k++) {
      if (k < total) yield chunkedAction("F", worker, k, options);
      if (k >= warmUp && k < total + warmUp) yield chunkedAction("I", worker, k - warmUp, options);
      if (k >= late) yield chunkedAction("W", worker, k - late, options);
    }
  },
});

/**
 * The order of a worker: `warmUp` forwards; then in turn I, a W if the worker holds `held`
 * activations, and F; after the last forward I and W in turn, then the remaining W. There are `count`
 * actions of each kind.
 */
function* zeroBubbleOrder(
  worker: number,
  { warmUp, held, count }: { warmUp: number; held: number; count: number },
  slices = 1,
): Iterable<Action> {
  const make = makerOf(worker, slices);
  let [forwards, inputs, weights] = [0, 0, 0];
  while (forwards < Math.min(warmUp, count)) yield make("F", forwards++);
  while (forwards < count) {
    yield make("I", inputs++);
    if (forwards - weights >= held) yield make("W", weights++);
    yield make("F", forwards++);
  }
  while (inputs < count) yield* [make("I", inputs++), make("W", weights++)];
  while (weights < count) yield make("W", weights++);
}

/** Defines ZB-H1, with a slice as its unit if micro-batches are cut into slices. */
const defineH1 = (definition: Pick<ScheduleRule, "name" | "reads" | "summary">) =>
  defineSchedule({
    ...definition,
    check: requireFull,
    place: (options) => ({ ...linear(options), slices: slicesIn(definition, options) }),
    order(worker, options) {
      const slices = slicesIn(definition, options), held = options.workers + slices - 1;
      const limits = { warmUp: held - worker, held, count: options.microBatches * slices };
      return zeroBubbleOrder(worker, limits, slices);
    },
  });

/**
 * ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.1): a third of the bubbles of
 * 1F1B; every worker holds the activations of the first worker of 1F1B.
 */
export const zeroBubbleH1 = defineH1({
  name: "zb-h1",
  reads: [],
  summary: "split backward: a third of 1f1b's bubbles, D activations on every worker",
});

/**
 * Seq1F1B (Sun et al. 2024) with the split backwards of ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline
 * Parallelism", section 2.1): the unit of ZB-H1 is a slice. The slices of one micro-batch are live
 * together, as backwards begin with the last one.
 */
export const seqZeroBubble = defineH1({
  name: "seq1f1b-zb",
  reads: ["slices"],
  summary: "zb-h1 over slices of the sequence: a third of seq1f1b's bubbles",
});

/**
 * ZB-H2 (the same paper, section 2.2): bubbles only at the two ends of a step, for twice the
 * activations.
 */
export const zeroBubbleH2 = defineSchedule({
  name: "zb-h2",
  reads: [],
  summary: "split backward: no bubbles between first and last action, 2D - 1 activations",
  check(name, { workers, microBatches }) {
    const least = 2 * workers - 1;
    const must = `at least ${least} for ${workers} workers`;
    requireOption(name, "microBatches", microBatches, microBatches >= least, must);
  },
  place: linear,
  order(worker, { workers, microBatches: count }) {
    const limits = { warmUp: 2 * (workers - worker) - 1, held: 2 * workers - 1, count };
    return zeroBubbleOrder(worker, limits);
  },
});

/** Counts the actions of the two stages of a worker; `a` is the stage nearer to the input. */
function vStages(worker: number, workers: number) {
  const next = { Fa: 0, Fb: 0, Ia: 0, Ib: 0, Wa: 0, Wb: 0 };
  const a = worker, b = 2 * workers - 1 - worker;
  return {
    next,
    Fa: () => F(a, next.Fa++),
    Fb: () => F(b, next.Fb++),
    Ia: () => I(a, next.Ia++),
    Ib: () => I(b, next.Ib++),
    Wa: () => W(a, next.Wa++),
    Wb: () => W(b, next.Wb++),
  };
}

/** The order of a worker for at least 2P-1 micro-batches, which fill the pipeline. */
function* fullOrder(worker: number, { workers, microBatches }: ScheduleOptions): Iterable<Action> {
  const { next, Fa, Fb, Ia, Ib, Wa, Wb } = vStages(worker, workers);
  const below = workers - worker, total = Math.max(microBatches, 2 * workers - 1);
  for (let i = 0; i < 2 * below - 1; i++) yield Fa();
  for (let i = 0; i < worker; i++) yield* [Fb(), Fa()];
  for (let i = 0; i < below; i++) yield* [Fb(), Ib(), Wb()];
  while (next.Fa < total || next.Fb < total) {
    if (next.Fa < total) yield Fa();
    yield* [Ia(), Wa()];
    if (next.Fb < total) yield Fb();
    yield* [Ib(), Wb()];
  }
  for (let i = 0; i < worker; i++) yield* [Ia(), Ib()];
  for (let i = 0; i < below; i++) yield* [Ia(), Wa()];
  while (next.Wb < total) yield Wb();
  while (next.Wa < total) yield Wa();
}

/**
 * ZB-V (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 6): stages r and 2P-1-r on worker
 * r, so that the loss is on worker 0. The order of fewer than 2P-1 micro-batches is that of 2P-1
 * without the missing ones, as in PyTorch's ZBVZeroBubble.
 */
export const zeroBubbleV = defineSchedule({
  name: "zb-v",
  reads: [],
  summary: "split backward, two stages on each worker in a V: no bubbles with D activations",
  place: (options) => wave({ ...options, waves: 1 }),
  *order(worker, options): Iterable<Action> {
    for (const action of fullOrder(worker, options)) {
      if (action.microBatch < options.microBatches) yield action;
    }
  },
});
