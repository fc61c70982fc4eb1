/** DualPipe and DualPipeV: two streams of micro-batches, forward and backward overlapped. */

import { type Action, B, F, I, overlap, W } from "../action.ts";
import { bidirectional, defineSchedule, requireOption, wave } from "../define.ts";

/** One of the two streams of a worker: its stage and its first micro-batch. */
interface Stream {
  readonly stage: number;
  readonly first: number;
}

/** The two streams of a worker, and its place among the workers of half a V. */
interface DualWorker {
  /** Forwards of stream 0 are the first to reach the worker. */
  readonly streams: readonly [Stream, Stream];
  /** Workers from here to the middle, without this one. */
  readonly toMiddle: number;
  /** Workers from here to the outside. */
  readonly toOutside: number;
  /** Micro-batches of each stream. */
  readonly count: number;
}

/** The eight steps of DualPipe; W actions wait in a queue and run first in, first out. */
function* dualOrder({ streams, toMiddle, toOutside, count }: DualWorker): Iterable<Action> {
  const waiting: Action[] = [], forwards = [0, 0], backwards = [0, 0];
  const counted =
    (make: (stage: number, microBatch: number) => Action, counts: number[]) => (phase: 0 | 1) =>
      make(streams[phase].stage, streams[phase].first + counts[phase]!++);
  const Fp = counted(F, forwards), Bp = counted(B, backwards);
  const Ip = counted((stage, microBatch) => {
    waiting.push(W(stage, microBatch));
    return I(stage, microBatch);
  }, backwards);
  const Wp = () => waiting.shift()!;

  const outer = toOutside + 1;
  for (let i = 0; i < 2 * toMiddle; i++) yield Fp(0);
  for (let i = 0; i < outer; i++) yield* [Fp(0), Fp(1)];
  for (let i = 0; i < toMiddle; i++) yield* [Ip(1), Wp(), Fp(1)];
  for (let i = 0; i < count - 2 * toMiddle - outer; i++) {
    // The middle workers run their first pair one after the other, before its gradient has come.
    if (i === 0 && toMiddle === 0) yield* [Fp(0), Bp(1)];
    else yield overlap(Fp(0), Bp(1));
    yield overlap(Fp(1), Bp(0));
  }
  for (let i = 0; i < toMiddle; i++) yield* [Bp(1), overlap(Fp(1), Bp(0))];
  // From the middle of this step on, the W are delayed.
  for (let i = 0; i < outer; i++) {
    const split = (phase: number) => 2 * i + phase >= outer;
    yield split(0) ? Ip(1) : Bp(1);
    yield split(1) ? Ip(0) : Bp(0);
  }
  for (let i = 0; i < toMiddle; i++) yield* [Wp(), Ip(0)];
  for (let i = 0; i < outer; i++) yield Wp();
}

/**
 * DualPipe (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1): a pipeline in each
 * direction; pipeline 0 takes the first N/2 micro-batches. Every worker holds P+1 activations, and two
 * copies of a stage.
 */
export const dualPipe = defineSchedule({
  name: "dualpipe",
  reads: [],
  summary: "a pipe in each direction, forwards and backwards overlapped; two copies of the model",
  check(name, { workers, microBatches }) {
    requireOption(name, "workers", workers, workers % 2 === 0, "even");
    const must = `even and at least ${2 * workers} for ${workers} workers`;
    const holds = microBatches % 2 === 0 && microBatches >= 2 * workers;
    requireOption(name, "microBatches", microBatches, holds, must);
  },
  place: ({ workers, microBatches }) => ({
    ...bidirectional({ workers, microBatches }),
    pipelineOf: (microBatch) => microBatch < microBatches / 2 ? 0 : 1,
  }),
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
 * DualPipeV ("cut in half" in DeepSeek's repository DualPipe): the same steps with both halves of one
 * copy laid in a V. Every worker holds P + 1/2 activations.
 */
export const dualPipeV = defineSchedule({
  name: "dualpipe-v",
  reads: [],
  summary: "DualPipe with one copy of the model, its stages in a V",
  check(name, { workers, microBatches }) {
    const must = `at least ${2 * workers} for ${workers} workers`;
    requireOption(name, "microBatches", microBatches, microBatches >= 2 * workers, must);
  },
  place: (options) => wave({ ...options, waves: 1 }),
  order: (worker, { workers, microBatches }) =>
    dualOrder({
      streams: [{ stage: worker, first: 0 }, { stage: 2 * workers - 1 - worker, first: 0 }],
      toMiddle: workers - 1 - worker,
      toOutside: worker,
      count: microBatches,
    }),
});
