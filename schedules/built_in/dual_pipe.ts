/** DualPipe and DualPipeV: two streams of micro-batches, forward and backward overlapped. */

import { type Action, B, F, I, overlap, W } from "../action.ts";
import {
  type ClosedForm,
  defineSchedule,
  perWorker,
  requireOption,
  type ScheduleOptions,
  type UniformCosts,
  wave,
} from "../define.ts";

/** What a worker does for one of its two streams: its stage, and the first of its micro-batches. */
interface Stream {
  readonly stage: number;
  readonly first: number;
}

/** The two streams of a worker, and its place among the workers of half a V. */
interface DualWorker {
  /** Stream 0 is the one whose forwards reach the worker first. */
  readonly streams: readonly [Stream, Stream];
  /** The workers from here to the middle, this one not counted. */
  readonly toMiddle: number;
  /** The workers from here to the outside. */
  readonly toOutside: number;
  /** Micro-batches of each stream. */
  readonly count: number;
}

/** The eight steps of DualPipe; W actions wait in a queue and run first in, first out. */
function* dualOrder({ streams, toMiddle, toOutside, count }: DualWorker): Iterable<Action> {
  const forwards = [0, 0];
  const backwards = [0, 0];
  const waiting: Action[] = [];
  const take = (counts: number[], phase: 0 | 1) => {
    const done = counts[phase] as number;
    counts[phase] = done + 1;
    return { stage: streams[phase].stage, microBatch: streams[phase].first + done };
  };
  const Fp = (phase: 0 | 1) => {
    const { stage, microBatch } = take(forwards, phase);
    return F(stage, microBatch);
  };
  const Bp = (phase: 0 | 1) => {
    const { stage, microBatch } = take(backwards, phase);
    return B(stage, microBatch);
  };
  const Ip = (phase: 0 | 1) => {
    const { stage, microBatch } = take(backwards, phase);
    waiting.push(W(stage, microBatch));
    return I(stage, microBatch);
  };
  const Wp = () => waiting.shift() as Action;

  const outer = toOutside + 1;
  for (let i = 0; i < 2 * toMiddle; i++) yield Fp(0);
  for (let i = 0; i < outer; i++) yield* [Fp(0), Fp(1)];
  for (let i = 0; i < toMiddle; i++) yield* [Ip(1), Wp(), Fp(1)];
  for (let i = 0; i < count - 2 * toMiddle - outer; i++) {
    // The middle workers run their first pair one after the other: its gradient is not there yet.
    if (i === 0 && toMiddle === 0) yield* [Fp(0), Bp(1)];
    else yield overlap(Fp(0), Bp(1));
    yield overlap(Fp(1), Bp(0));
  }
  for (let i = 0; i < toMiddle; i++) yield* [Bp(1), overlap(Fp(1), Bp(0))];
  // From the middle of this step on, the weights wait.
  for (let i = 0; i < outer; i++) {
    const split = (phase: number) => 2 * i + phase >= outer;
    yield split(0) ? Ip(1) : Bp(1);
    yield split(1) ? Ip(0) : Bp(0);
  }
  for (let i = 0; i < toMiddle; i++) yield* [Wp(), Ip(0)];
  for (let i = 0; i < outer; i++) yield Wp();
}

/**
 * With F&B = tF + tB, no gain from the overlap: for tI <= tF the idle time is exactly
 * (P/2-1)(2tF + max(0, tI - tW)), which at equal durations is the published
 * (P/2-1)(F&B + B - 3W); beyond, the larger of that and (P/2-1)2tI bounds it. With a gain and equal
 * durations the published one is that of the inner workers; the others, which overlap more, are
 * less busy by what they gain less. Every worker holds P+1 activations, and two copies of a stage.
 */
function dualPipeForm({ workers }: ScheduleOptions, costs: UniformCosts): ClosedForm {
  return {
    ...dualIdle(workers / 2 - 1, costs),
    peakActivations: perWorker(workers, () => workers + 1),
    weights: perWorker(workers, () => 2),
  };
}

/**
 * As DualPipe, on 2P stages of half the size: (P-1)/2 in the place of P/2-1, P + 1/2 activations,
 * one copy of the model.
 */
function dualPipeVForm({ workers }: ScheduleOptions, costs: UniformCosts): ClosedForm {
  return {
    ...dualIdle((workers - 1) / 2, costs),
    peakActivations: perWorker(workers, () => workers + 0.5),
    weights: perWorker(workers, () => 1),
  };
}

function dualIdle(gaps: number, costs: UniformCosts): Partial<ClosedForm> {
  const { forward, backward, input, weight, overlap } = costs;
  const published = gaps * (overlap + backward - 3 * weight);
  if (overlap !== forward + backward) {
    return forward === input && input === weight ? { idleAtMost: published } : {};
  }
  if (input <= forward) return { idle: gaps * (2 * forward + Math.max(0, input - weight)) };
  return { idleAtMost: Math.max(published, gaps * 2 * input) };
}

/**
 * DualPipe (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1): a pipe in each
 * direction; pipe 0 takes the first N/2.
 */
export const dualPipe = defineSchedule({
  name: "dualpipe",
  reads: [],
  summary: "a pipe in each direction, forwards and backwards overlapped; two copies of the model",
  closedForm: dualPipeForm,
  place({ workers, microBatches }) {
    requireOption("dualpipe", "workers", workers, workers % 2 === 0, "even");
    const must = `even and at least ${2 * workers} for ${workers} workers`;
    const holds = microBatches % 2 === 0 && microBatches >= 2 * workers;
    requireOption("dualpipe", "microBatches", microBatches, holds, must);
    return {
      stages: workers,
      replicas: 2,
      workerOf: (stage, replica) => replica === 0 ? stage : workers - 1 - stage,
      replicaOf: (microBatch) => microBatch < microBatches / 2 ? 0 : 1,
    };
  },
  order(worker, { workers, microBatches }) {
    const toOutside = Math.min(worker, workers - 1 - worker);
    const down: Stream = { stage: worker, first: 0 };
    const up: Stream = { stage: workers - 1 - worker, first: microBatches / 2 };
    return dualOrder({
      streams: worker < workers / 2 ? [down, up] : [up, down],
      toMiddle: workers / 2 - 1 - toOutside,
      toOutside,
      count: microBatches / 2,
    });
  },
});

/**
 * DualPipeV ("cut in half", as DeepSeek's repository DualPipe has it): the same steps with both halves
 * of one copy laid in a V.
 */
export const dualPipeV = defineSchedule({
  name: "dualpipe-v",
  reads: [],
  summary: "DualPipe with one copy of the model, its stages in a V",
  closedForm: dualPipeVForm,
  place(options) {
    const { workers, microBatches } = options;
    const must = `at least ${2 * workers} for ${workers} workers`;
    requireOption("dualpipe-v", "microBatches", microBatches, microBatches >= 2 * workers, must);
    return wave({ ...options, waves: 1 });
  },
  order: (worker, { workers, microBatches }) =>
    dualOrder({
      streams: [{ stage: worker, first: 0 }, { stage: 2 * workers - 1 - worker, first: 0 }],
      toMiddle: workers - 1 - worker,
      toOutside: worker,
      count: microBatches,
    }),
});
