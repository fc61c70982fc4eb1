/** Formulas of the papers on AxoNN, Chimera and Hanayo, as printed and corrected. */

import {
  type Analysis,
  analyze,
  criticalPath,
  type Link,
  type Schedule,
} from "../../schedules/mod.ts";

/** A link by the α-β model: `latencyMs` is α, `1 / bytesPerMs` is β. */
export type LinkModel = Readonly<Record<keyof Link, number>>;

/**
 * Milliseconds of one message: α + βL.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * strictEqual(messageMs(4e6, { latencyMs: 0.5, bytesPerMs: 1e6 }), 4.5);
 * ```
 */
export const messageMs = (bytes: number, { latencyMs, bytesPerMs }: LinkModel): number =>
  latencyMs + bytes / bytesPerMs;

/**
 * Milliseconds of an all-reduce by Rabenseifner's algorithm over `copies` of the same gradients:
 * 2 log2(r) α + 2 (r-1)/r βL (Chimera, section 3.4). With one copy there is nothing to send.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * strictEqual(rabenseifnerMs(8e6, 4, { latencyMs: 1, bytesPerMs: 1e6 }), 16);
 * ```
 */
export function rabenseifnerMs(bytes: number, copies: number, link: LinkModel): number {
  const { latencyMs } = link, bandwidthMs = messageMs(bytes, link) - latencyMs;
  return 2 * Math.log2(copies) * latencyMs + 2 * (copies - 1) / copies * bandwidthMs;
}

/**
 * The most layer outputs that a worker keeps when every `every`-th is a checkpoint and the rest is
 * recomputed: G·(N/(G·ac) + 1) + ac, in outputs of one layer for one micro-batch (section V-A, which
 * has ac within the brackets although one micro-batch is recomputed at a time).
 *
 * @param layers N, of the whole model.
 * @param workers G_inter: the depth, and micro-batches in flight.
 * @param every ac: the number of layers for each checkpoint.
 *
 * @example The minimum is at ac = sqrt(N)
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * const least = [1, 2, 4, 8, 16].map((every) => checkpointedOutputs(64, 4, every));
 * deepStrictEqual(least, [69, 38, 24, 20, 24]);
 * ```
 */
export const checkpointedOutputs = (layers: number, workers: number, every: number): number =>
  workers * (layers / (workers * every) + 1) + every;

/**
 * The formula as the paper prints it, G·(N/(G·ac) + 1 + ac), for comparison: as if every micro-batch
 * in flight were recomputed at the same time. Its minimum is at ac = sqrt(N/G).
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * strictEqual(printedOutputs(48, 24, 2), 96);
 * ```
 */
export const printedOutputs = (layers: number, workers: number, every: number): number =>
  workers * (layers / (workers * every) + 1 + every);

/**
 * Bytes of weights, gradients and Adam's states in mixed precision: 20 for each trained number; with
 * the optimizer's states offloaded to the host 4 for each, and 16 for each number of one bucket
 * (section V-B).
 *
 * @param parameters φ, trained numbers of the worker.
 * @param bucket Numbers of a bucket; nothing is offloaded unless given.
 *
 * @example Offload saves a factor of five, minus the bucket
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * deepStrictEqual([mixedPrecisionBytes(2e9), mixedPrecisionBytes(2e9, 16e6)], [40e9, 8.256e9]);
 * ```
 */
export const mixedPrecisionBytes = (parameters: number, bucket?: number): number =>
  bucket === undefined ? 20 * parameters : 4 * parameters + 16 * bucket;

/** Sizes of a transformer that determine its floating-point operations. */
interface TransformerSizes {
  /** l: layers. */
  readonly layers: number;
  /** h: the hidden size. */
  readonly hidden: number;
  /** s: tokens of a sample. */
  readonly sequence: number;
  /** V: the size of the vocabulary. */
  readonly vocabulary: number;
}

/**
 * Floating-point operations of one step over `samples`: 96·b·s·l·h²·(1 + s/6h + V/16lh) (section VI-D
 * after Narayanan et al.). It counts four forwards: one, one to recompute it, and two for the backward;
 * the head counts three, without recomputation.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * const sizes = { layers: 1, hidden: 6, sequence: 36, vocabulary: 96 };
 * strictEqual(recomputedStepFlops(sizes, 1), 96 * 36 * 36 * 3);
 * ```
 */
export function recomputedStepFlops(sizes: TransformerSizes, samples: number): number {
  const { layers: l, hidden: h, sequence: s, vocabulary: V } = sizes;
  return 96 * samples * s * l * h ** 2 * (1 + s / (6 * h) + V / (16 * l * h));
}

/** Variables of Eq. 1. */
interface ChimeraStep {
  /** The schedule: Chimera's, or another whose backwards are not split. */
  readonly schedule: Schedule;
  /** F_t: milliseconds of a forward of one micro-batch by 1/D of the model. */
  readonly forwardMs: number;
  /** B_t as a number of F_t: 2, or 3 with recomputation. */
  readonly backward?: 2 | 3;
  /** Comm_p2p: milliseconds of a message from stage to stage. */
  readonly messageMs: number;
  /** Comm_allreduce: milliseconds of the all-reduce of one stage. */
  readonly allReduceMs: number;
}

/**
 * Milliseconds of one step by Eq. 1, as a sum and its three terms:
 * T = (F_t + Comm_p2p)·C_f + (B_t + Comm_p2p)·C_b + max Comm_unoverlapped(i).
 *
 * @throws {RangeError} if the schedule deadlocks.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("chimera", { workers: 4, microBatches: 4 });
 * deepStrictEqual(chimeraStep({ schedule, forwardMs: 10, messageMs: 1, allReduceMs: 25 }), {
 *   totalMs: 200,
 *   computeMs: 160,
 *   messagesMs: 10,
 *   unoverlappedMs: 30,
 * });
 * ```
 */
export function chimeraStep(step: ChimeraStep) {
  const { schedule, forwardMs, backward = 2, messageMs, allReduceMs } = step;
  const { forwards, backwards } = criticalPath(schedule, backward);
  const computeMs = forwardMs * (forwards + backward * backwards);
  const messagesMs = messageMs * (forwards + backwards);
  const analysis = analyze(schedule, { forward: forwardMs, backward: backward * forwardMs });
  const unoverlappedMs = Math.max(...unoverlappedReduce(analysis, allReduceMs));
  const totalMs = computeMs + messagesMs + unoverlappedMs;
  return { totalMs, computeMs, messagesMs, unoverlappedMs };
}

/**
 * Comm_unoverlapped(i): for each worker, the time that the all-reduces of its stages, `allReduceMs`
 * each, take beyond the step's computation. They run one after the other, and only while the worker is
 * idle after the last backward of the stage: the free regions of the paper's Figure 6.
 *
 * @example The outer workers have a bubble after their first stage, the inner workers end early
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { analyze, createSchedule } from "@troupe/troupe/schedules";
 *
 * const chimera = createSchedule("chimera", { workers: 4, microBatches: 4 });
 * deepStrictEqual(unoverlappedReduce(analyze(chimera), 2), [2, 2, 2, 2]);
 * ```
 */
export function unoverlappedReduce(analysis: Analysis, allReduceMs: number): number[] {
  return analysis.schedule.lists.map((_, worker) => {
    let left = 0;
    const regions = freeRegions(analysis, worker);
    for (const { copies, idle } of regions) left = Math.max(0, left + copies * allReduceMs - idle);
    return left;
  });
}

/** Idle times of a worker after `copies` more of its stages have their gradients. */
function freeRegions({ schedule, execution }: Analysis, worker: number) {
  const list = schedule.lists[worker]!;
  const { starts, ends, makespan } = execution.timeline;
  const lastOf = new Map<string, number>();
  for (let index = 0; index < list.length; index++) {
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const pipeline = schedule.pipelineOf[list.microBatchAt(part)]!;
      lastOf.set(`${list.stageAt(part)} ${pipeline}`, index);
    }
  }
  const lasts = [...lastOf.values()].sort((a, b) => a - b);
  return [...list].map((_, index) => ({
    copies: lasts.filter((last) => last === index).length,
    idle: (starts[worker]![index + 1] ?? makespan) - ends[worker]![index]!,
  })).slice(lasts[0] ?? list.length);
}

/** Variables of the bubble ratio. */
interface HanayoStep {
  /** P: workers, and micro-batches of a round. */
  readonly workers: number;
  /** W: waves. */
  readonly waves: number;
  /** K: rounds of P micro-batches in a step. Default 1. */
  readonly rounds?: number;
  /** T_F: a worker's forwards of one micro-batch. */
  readonly forward: number;
  /** T_B: a worker's backwards of one micro-batch; at least T_F. */
  readonly backward: number;
  /** T_C: a message; 0 unless given. Formulas with messages hold for one round. */
  readonly message?: number;
}

/**
 * The bubble ratio of Hanayo's schedule: the idle time (P-1)/W·(T_B + (K-1)(T_B - T_F)) of a worker
 * that computes for KP(T_F + T_B).
 *
 * Messages, in one round, add (4W(P-1) + 2(P-2))·T_C: 2W(P-1) hops in each direction, and two for each
 * worker between the outer ones, where the paths of neighbouring micro-batches cross. This is exact
 * while a message is short compared to the forward of a stage, and a lower bound otherwise.
 *
 * The paper's Eq. 1 has T_B/2W instead of T_B/W, so that its step is below a lower bound; its terms
 * with T_C differ between numerator and denominator.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * const step = { workers: 8, waves: 2, forward: 1, backward: 2 };
 * strictEqual(hanayoBubbleRatio(step), 14 / 62); // (2P-2)/(3PW+2P-2)
 * ```
 */
export function hanayoBubbleRatio(step: HanayoStep): number {
  const { workers: P, waves: W, rounds = 1, forward, backward, message = 0 } = step;
  const waits = (P - 1) / W * (backward + (rounds - 1) * (backward - forward));
  const idle = waits + (P === 1 ? 0 : (4 * W * (P - 1) + 2 * (P - 2)) * message);
  return idle / (rounds * P * (forward + backward) + idle);
}

/**
 * The bubble ratio as the paper's Eq. 1 prints it, for comparison; at T_B = 2T_F without messages
 * (2P-2)/(3PW+P-1). It holds for one round on several workers.
 *
 * @example
 * ```ts
 * import { ok } from "node:assert/strict";
 *
 * const step = { workers: 8, waves: 2, forward: 1, backward: 2 };
 * ok(hanayoPrintedRatio(step) > hanayoBubbleRatio(step));
 * ```
 */
export function hanayoPrintedRatio(step: HanayoStep): number {
  const { workers: P, waves: W, forward, backward, message = 0 } = step;
  const above = backward / W + (1 + 2 * W + 2 / P + (P - 2) / 3) * message;
  const below = P / (P - 1) * forward + (1 / (2 * W) + P / (P - 1)) * backward +
    ((P - 2) / 2 + 4 * W) * message;
  return above / below;
}
