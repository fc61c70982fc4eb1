/** Closed forms of the measures of schedules by rule: exact where their assumptions hold, or bounds. */

import type { ScheduleOptions } from "../../schedules/mod.ts";

/** Durations: the same for every 1/P of the model, and no messages. */
export interface UniformCosts {
  /** A forward, tF. */
  readonly forward: number;
  /** A full backward, tB = tI + tW. */
  readonly backward: number;
  /** The backward for the input, tI. */
  readonly input: number;
  /** The backward for the weights, tW. */
  readonly weight: number;
  /** A forward and a full backward that overlap, tF&B. */
  readonly overlap: number;
}

/** Measures of the workers of a schedule. A field is present only if its assumptions hold. */
export interface ClosedForm {
  /** Idle time, the flush included. */
  readonly idle?: number;
  /** Idle time between a worker's first and last action. */
  readonly idleLocal?: number;
  /** Peak activations of a worker, in micro-batches of 1/P of the model. */
  readonly peak?: (worker: number) => number;
  /** Weights of a worker, in 1/P of the model. Default 1. */
  readonly weights?: (worker: number) => number;
  /** No worker is idle for less. */
  readonly idleAtLeast?: number;
  /** No worker is idle for more. */
  readonly idleAtMost?: number;
  /** No worker holds more activations. */
  readonly peakAtMost?: number;
}

type Form = (options: ScheduleOptions, costs: UniformCosts) => ClosedForm;

/** Returns true if a forward and the two parts of a backward take equal times. */
const isEqual = ({ forward, input, weight }: UniformCosts): boolean =>
  forward === input && input === weight;

/**
 * For any tF, tB, D and N if all slices of a micro-batch take the same time; without slices
 * T = (N + D - 1)(tF + tB).
 */
const gpipe: Form = ({ workers, microBatches, slices = 1 }, { forward, backward }) => ({
  idle: (workers - 1) * (forward + backward) / slices,
  peak: () => microBatches,
});

/**
 * For any tF, tB, D and N, if all slices of a micro-batch take the same time: without slices, the
 * time of GPipe with min(N, D - s) activations on worker s.
 */
const oneFOneB: Form = ({ workers, microBatches, slices = 1 }, { forward, backward }) => ({
  idle: (workers - 1) * (forward + backward) / slices,
  peak: (s) => Math.min(microBatches * slices, workers - 1 - s + slices) / slices,
});

/**
 * For any tF and tB if all slices of a micro-batch take the same time. Each worker holds two slices
 * of a chunk fewer than the one before; if S >= P, worker r holds one micro-batch and 2(P-1-r) of
 * them. With fewer micro-batches than workers and one slice, each missing one costs a forward and a
 * backward of all but one chunk.
 */
const interleaved: Form = (options, { forward, backward }) => {
  const { workers, microBatches, chunks = 2, slices = 1 } = options, units = slices * chunks;
  const gaps = workers - 1 + (chunks - 1) * Math.max(0, workers - microBatches * slices);
  // A round is all slices that pass a chunk before the next: enough to fill the workers, or more.
  const isLong = slices >= workers, all = isLong ? slices : microBatches * slices;
  const rounds = Math.max(1, Math.floor(all / workers)), size = all / rounds;
  const first = isLong ? rounds * chunks * size : (chunks - 1) * size + slices;
  return {
    idle: gaps * (forward + backward) / units,
    peak: (r) => Math.min(microBatches * units, first + 2 * (workers - 1 - r)) / units,
  };
};

/**
 * For any durations and N >= D if all slices of a micro-batch take the same time: D slices and the
 * others of one micro-batch are live on every worker. The idle time of the paper,
 * (D-1)(tF + max(0, tI - tW)), ignores that gradients leave a stage at most every tI, which matters
 * only if tI > tF and tW > tF.
 */
const zeroBubbleH1: Form = ({ workers, slices = 1 }, { forward, input, weight }) => ({
  idle: (workers - 1) * Math.max(forward, input, forward + input - weight) / slices,
  peak: () => (workers + slices - 1) / slices,
});

/**
 * Holds for K whole units, N = KD; no other N has a closed form.
 *
 * Idle time, with Q = D/f - 2: direct, for tB >= tF, Q(tB + (K-1)(tB - tF)); halving, at tB = 2tF,
 * Q·tF; doubling, at tB = 2tF, Q/2·(tF + tB) for even K, Q·tF more for odd K. Section 3.6 counts
 * 2(D/f - 1) bubbles; the table has D/f - 2.
 *
 * Peaks, at any durations: a worker e steps from the edge of its pipe's half (0 <= e < D/2f) holds
 * b = D/2f - 1 - e fewer than the most. Direct D - b, doubling 2D - b, halving D - b/2.
 */
const chimera: Form = (options, costs) => {
  const { workers: depth, microBatches, pipelines: f = 1, scale = "direct" } = options;
  const weights = () => 2 * f, units = microBatches / depth;
  const kind = units < 2 && scale === "doubling" ? "direct" : scale;
  const most = kind === "doubling" ? 2 * depth : depth;
  if (!Number.isInteger(units)) return { weights, peakAtMost: most };
  const lacking = kind === "halving" ? 0.5 : 1;
  const peak = (worker: number) => {
    const within = worker % (depth / f);
    const fromEdge = Math.min(within, depth / f - 1 - within);
    return most - lacking * (depth / (2 * f) - 1 - fromEdge);
  };
  const { forward: tF, backward: tB } = costs, slots = depth / f - 2;
  if (kind === "direct") {
    const idle = slots * (tB + (units - 1) * (tB - tF));
    return { weights, peak, ...tB >= tF && { idle } };
  }
  const doubled = slots / 2 * (tF + tB) + (units % 2 === 0 ? 0 : slots * tF);
  const idle = kind === "halving" ? slots * tF : doubled;
  return { weights, peak, ...tB === 2 * tF && { idle } };
};

/**
 * The idle time of K rounds (N = KP) holds for tB >= tF: (P-1)/W·(tB + (K-1)(tB - tF)). The paper's
 * T for one round, 3P + (P-1)/W at tB = 2tF, is below the lower bound 3P + 1.5(P-1)/W; with 1/W of a
 * backward in place of its 1/2W the two agree. All but the last worker hold a little less than one
 * activation of each micro-batch.
 */
const hanayo: Form = ({ workers, microBatches, waves = 1 }, { forward: tF, backward: tB }) => {
  const idle = (workers - 1) / waves * (tB + (microBatches / workers - 1) * (tB - tF));
  const peak = (r: number) => workers - (workers - 1 - r % workers) / (2 * waves);
  return { peak, ...tB >= tF && { idle } };
};

/**
 * With F&B = tF + tB, no gain from the overlap, and tI <= tF the idle time is exactly
 * (P/2-1)(2tF + max(0, tI - tW)), which at equal durations is the published
 * (P/2-1)(F&B + B - 3W); for tI > tF, the larger of that and (P/2-1)2tI is an upper bound. With a gain,
 * equal durations and F&B >= tB the published time is that of the inner workers; the others overlap
 * fewer pairs, so they are busy for longer and idle for less.
 *
 * @param gaps P/2-1, or (P-1)/2 for DualPipeV, whose 2P stages are half as large.
 */
function dualIdle(gaps: number, costs: UniformCosts): ClosedForm {
  const { forward, backward, input, weight, overlap } = costs;
  const published = gaps * (overlap + backward - 3 * weight);
  if (overlap !== forward + backward) {
    const isGain = overlap >= backward && overlap < forward + backward;
    return isEqual(costs) && isGain ? { idleAtMost: published } : {};
  }
  if (input <= forward) return { idle: gaps * (2 * forward + Math.max(0, input - weight)) };
  return { idleAtMost: Math.max(published, gaps * 2 * input) };
}

/** The closed forms by the names of the schedules; others have none. */
export const CLOSED_FORMS: Readonly<Record<string, Form>> = {
  gpipe,
  terapipe: gpipe,
  // The idle time holds for N >= D and any tF and tB; with fewer micro-batches it is a lower bound.
  "looped-bfs"({ workers, microBatches, chunks = 2 }, { forward, backward }) {
    const idle = (workers - 1) * (forward + backward) / chunks, peak = () => microBatches;
    return { peak, ...microBatches >= workers ? { idle } : { idleAtLeast: idle } };
  },
  "1f1b": oneFOneB,
  seq1f1b: oneFOneB,
  // Time and activations are those of a step that starts with an empty pipeline and drains it, such
  // as before a checkpoint. Between two drains there is no idle time, and worker s keeps a version of
  // its weights for each of the D - s micro-batches in flight.
  pipedream: (options, costs) => ({
    ...oneFOneB(options, costs),
    weights: (s) => options.workers - s,
  }),
  "pipedream-2bw": (options, costs) => ({ ...oneFOneB(options, costs), weights: () => 2 }),
  interleaved,
  slimpipe: interleaved,
  "zb-h1": zeroBubbleH1,
  "seq1f1b-zb": zeroBubbleH1,
  // For any durations and N >= 2D-1. At equal durations a worker is never idle between its first and
  // last action. The workers still start one after the other, which costs (D-1)tF, so H2 gains over
  // H1 only if the next step may start without a barrier.
  "zb-h2"({ workers }, costs) {
    const { forward, input, weight } = costs;
    return {
      idle: (workers - 1) * Math.max(forward, input - forward, forward + input - 2 * weight),
      ...isEqual(costs) && { idleLocal: 0 },
      peak: () => 2 * workers - 1,
    };
  },
  // The idle time holds for tF = tI = tW. If N >= 2P-1, there is none between a worker's first and
  // last action, and the workers start one stage after the other; each missing micro-batch adds two
  // stages once the start no longer hides them. The peak, P activations on every worker, holds for
  // N >= 2P-1, and is an upper bound for fewer.
  "zb-v"({ workers, microBatches }, costs) {
    const isFull = microBatches >= 2 * workers - 1;
    const stages = Math.max(workers - 1, 4 * (workers - 1) - 2 * (microBatches - 1));
    return {
      ...isEqual(costs) && { idle: stages * costs.forward / 2 },
      ...isEqual(costs) && isFull && { idleLocal: 0 },
      ...isFull && { peak: () => workers },
      peakAtMost: Math.min(workers, microBatches),
    };
  },
  // The idle time holds for any durations and N >= D: that of ZB-H1 over the number of chunks; at
  // equal durations, the time until the last worker has its first input. There are D activations if
  // D divides N.
  "interleaved-zb"({ workers, microBatches, chunks = 2 }, { forward, input, weight }) {
    const idle = (workers - 1) * Math.max(forward, input, forward + input - weight) / chunks;
    const size = microBatches / Math.max(1, Math.floor(microBatches / workers));
    const live = Math.min(microBatches * chunks, (chunks - 1) * size + workers);
    const peak = () => live / chunks;
    return { peak, ...microBatches >= workers ? { idle } : { idleAtLeast: idle } };
  },
  // The idle time holds for tF = tI = tW: 6·ceil(P/2) - 7 actions of a stage, and one for P = 2. The
  // peaks, floor(P/2)+1 micro-batches, are exact for N > P and an upper bound for N = P.
  "v-half"({ workers: P, microBatches }, costs) {
    const stageActions = P === 1 ? 0 : P === 2 ? 1 : 6 * Math.ceil(P / 2) - 7;
    const peak = Math.floor(P / 2) + 1;
    return {
      ...isEqual(costs) && { idle: stageActions * costs.forward / 2 },
      ...microBatches > P && { peak: () => peak },
      peakAtMost: peak,
    };
  },
  // The idle time holds for tF = tI = tW: 4P-7 actions of a stage, and 4P-5 if P is 1 mod 3. The
  // peaks, ceil((P+2)/3) micro-batches, are exact except for P = N = 2, and if P is 2 mod 3 an upper
  // bound at other durations.
  "v-min"({ workers: P, microBatches }, costs) {
    const stageActions = P === 1 ? 0 : P % 3 === 1 ? 4 * P - 5 : 4 * P - 7;
    const peak = Math.ceil((P + 2) / 3);
    const isExact = P % 3 !== 2 || (isEqual(costs) && P * microBatches > 4);
    return {
      ...isEqual(costs) && { idle: stageActions * costs.forward / 2 },
      ...isExact && { peak: () => peak },
      peakAtMost: peak,
    };
  },
  chimera,
  // The idle time holds for tB >= tF: the forward wave of each micro-batch follows the backward wave
  // of the one before, so T = D·tF + N·D·tB + (N - 1)tF.
  gems({ workers, microBatches }, { forward, backward }) {
    const idle = (workers - 1) * (forward + microBatches * backward);
    return { ...backward >= forward && { idle }, peak: () => 1, weights: () => 2 };
  },
  hanayo,
  "chimera-wave": hanayo,
  dualpipe: ({ workers }, costs) => ({
    ...dualIdle(workers / 2 - 1, costs),
    peak: () => workers + 1,
    weights: () => 2,
  }),
  "dualpipe-v": ({ workers }, costs) => ({
    ...dualIdle((workers - 1) / 2, costs),
    peak: () => workers + 0.5,
  }),
  // With whole backwards and for any durations, no order has less idle time than 1F1B,
  // (D-1)(tF + tB), and no worker holds more than the limit. The peaks of `fifo` are exact,
  // [L, ..., L, 1], if the last of the first L forwards reaches the last worker but one before the
  // first backward does: (L - 3)tF < tB.
  "message-driven"(options, { forward, backward }) {
    const { workers, microBatches, order, chunks = 1, weightBacklog = 0 } = options;
    const { activationLimit = workers, pipelineLimit = Infinity } = options;
    const most = order === "bf" || order === "bfw"
      ? Math.floor(activationLimit * chunks) / chunks
      : pipelineLimit;
    const limit = Math.min(most, microBatches);
    const isExact = order === "fifo" && (limit - 3) * forward < backward;
    return {
      ...weightBacklog === 0 && chunks === 1 &&
        { idleAtLeast: (workers - 1) * (forward + backward) },
      peakAtMost: limit,
      ...isExact && { peak: (s) => s === workers - 1 ? 1 : limit },
    };
  },
};
