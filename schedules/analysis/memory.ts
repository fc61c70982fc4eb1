/** Memory of the workers of a schedule, and limits in bytes. */

import { type ActionList, KIND } from "../action_list.ts";
import { type Cost, stageShares } from "../costs.ts";
import { assertInput, refusal } from "../errors.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { recomputedStages } from "./recomputation.ts";
import { bytesOf, freedAt, levelsOf, type SkipLevels } from "./skip_memory.ts";

/** Bytes of one copy of a stage, and of its activations for one micro-batch. */
export interface StageMemory {
  /** One version of the weights. */
  readonly weightBytes?: number | undefined;
  /** The gradients. */
  readonly gradientBytes?: number | undefined;
  /** The states of the optimizer; 0 if they are kept in other memory. */
  readonly optimizerBytes?: number | undefined;
  /** Bytes that F keeps, from its start. */
  readonly keptBytes: number;
  /** Bytes that R brings back, or the start of B or I if there is no R. */
  readonly recomputedBytes?: number | undefined;
  /** Bytes of the activations that the end of I frees; W frees the rest, B all. */
  readonly freedByInputBytes?: number | undefined;
  /** Bytes that an action of the stage needs only while it runs. */
  readonly workBytes?: number | undefined;
  /** The array that carries an activation out and its gradient back: from F to B or I. */
  readonly messageBytes?: number | undefined;
}

/**
 * Bytes of 1/P of a model, or of each of any number of slices of it, as costs are given: for a model
 * whose stages are not known individually.
 */
export interface MemoryCosts {
  /** Weights. Default 0. */
  readonly weights?: Cost | undefined;
  /** Gradients. Default: the same as weights. */
  readonly gradients?: Cost | undefined;
  /** States of the optimizer; twice the weights unless given, as AdamW has in FP32. */
  readonly optimizer?: Cost | undefined;
  /** Activations, which the backward of a micro-batch reads. Default 0. */
  readonly activations?: Cost | undefined;
  /** The part of the activations that F keeps if an R brings back the rest. Default 0. */
  readonly kept?: Cost | undefined;
  /** The part of the activations that I frees; 0 unless given, so that W frees all. */
  readonly freedByInput?: Cost | undefined;
  /** An output of a stage, of any size of the stage. Default 0. */
  readonly message?: number | undefined;
}

/**
 * The memory of each stage of a schedule: its share of the model's.
 *
 * @throws {RangeError} if a number is not usable, or the model is cut into slices that the stages
 * cannot share.
 *
 * @example A stage with an R keeps only its input
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, stageMemories } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("interleaved", { workers: 2, microBatches: 2, chunks: 2 });
 * const [first] = stageMemories(schedule, { weights: 100, activations: [8, 8, 8, 8] });
 * deepStrictEqual(first, {
 *   weightBytes: 50,
 *   gradientBytes: 50,
 *   optimizerBytes: 100,
 *   keptBytes: 8,
 *   recomputedBytes: 0,
 *   freedByInputBytes: 0,
 *   messageBytes: 0,
 * });
 * ```
 */
export function stageMemories(schedule: Schedule, bytes: MemoryCosts): StageMemory[] {
  const share = (name: keyof MemoryCosts, cost: Cost = 0) => stageShares(schedule, name, cost);
  const weights = share("weights", bytes.weights);
  const gradients = share("gradients", bytes.gradients ?? bytes.weights);
  const optimizer = bytes.optimizer === undefined
    ? weights.map((one) => 2 * one)
    : share("optimizer", bytes.optimizer);
  const activations = share("activations", bytes.activations), kept = share("kept", bytes.kept);
  const freed = share("freedByInput", bytes.freedByInput);
  const recomputed = recomputedStages(schedule);
  return Array.from({ length: schedule.stages }, (_, stage) => {
    const all = activations[stage]!, keptBytes = recomputed.has(stage) ? kept[stage]! : all;
    const most = Math.max(keptBytes, freed[stage]!), atMost = `at most ${all} for stage ${stage}`;
    const must = `what is kept or freed of the activations must be ${atMost}`;
    assertInput(most <= all, "use these bytes", must, most);
    return {
      weightBytes: weights[stage]!,
      gradientBytes: gradients[stage]!,
      optimizerBytes: optimizer[stage]!,
      keptBytes,
      recomputedBytes: all - keptBytes,
      freedByInputBytes: freed[stage]!,
      messageBytes: stage < schedule.stages - 1 ? bytes.message ?? 0 : 0,
    };
  });
}

/** A number of bytes over time. */
export interface MemoryCurve {
  /** Times of changes, ascending, from 0. */
  readonly timesMs: readonly number[];
  /** The bytes held from each time on. */
  readonly bytes: readonly number[];
}

/** The bytes that a worker holds all the time: weights, gradients and states of the optimizer. */
export function heldBytes(stages: readonly (StageMemory | undefined)[], versions: number): number {
  return stages.reduce((sum, memory) => {
    const { weightBytes = 0, gradientBytes = 0, optimizerBytes = 0 } = memory ?? {};
    return sum + versions * weightBytes + gradientBytes + optimizerBytes;
  }, 0);
}

/**
 * The bytes that each part of a list adds while it runs (`during`) and that remain at its end
 * (`after`). A part of a micro-batch counts as its share: the shares of one add up to
 * whole bytes by the end of a step.
 *
 * @returns a function to call once for each part, in order.
 */
function changesOf(
  list: ActionList,
  memoryOf: (stage: number) => StageMemory | undefined,
  loadOf: (microBatch: number) => number = () => 1,
) {
  /** Cells that an R has brought back and no backward has read yet. */
  const recomputed = new Set<string>();
  const cellOf = (part: number) =>
    `${list.stageAt(part)} ${list.microBatchAt(part)} ${list.sliceAt(part)}`;
  return (part: number): { during: number; after: number } => {
    const memory = memoryOf(list.stageAt(part)), kind = list.kindAt(part);
    if (memory === undefined) return { during: 0, after: 0 };
    const share = loadOf(list.microBatchAt(part)) / list.countAt(part);
    const { keptBytes, recomputedBytes = 0, freedByInputBytes = 0, messageBytes = 0 } = memory;
    const all = keptBytes + recomputedBytes;
    const change = (during: number, after: number) => ({
      during: share * during,
      after: share * after,
    });
    if (kind === KIND.F) return change(keptBytes + messageBytes, keptBytes + messageBytes);
    if (kind === KIND.W) return change(0, freedByInputBytes - all);
    if (kind === KIND.R) {
      recomputed.add(cellOf(part));
      return change(recomputedBytes, recomputedBytes);
    }
    // All parts of a backward find the activation that R brought back.
    const isLast = list.countAt(part) === list.slices ||
      list.indexAt(part) === list.countAt(part) - 1;
    const isThere = isLast ? recomputed.delete(cellOf(part)) : recomputed.has(cellOf(part));
    const brought = isThere ? 0 : recomputedBytes;
    const freed = kind === KIND.I ? freedByInputBytes : all;
    return change(brought, brought - freed - messageBytes);
  };
}

/**
 * Yields the bytes of a worker from the start of each action on, and from its end on. Values that
 * arrive over skip edges while an action runs count from its start.
 */
export function* eachLevel(
  list: ActionList,
  memoryOf: (stage: number) => StageMemory | undefined,
  held: number,
  skips?: SkipLevels,
  loadOf?: (microBatch: number) => number,
): Generator<{ index: number; isEnd: boolean; bytes: number }, void> {
  const changeOf = changesOf(list, memoryOf, loadOf);
  let level = held;
  for (let index = 0; index < list.length; index++) {
    let during = 0, after = 0, work = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const change = changeOf(part);
      during += change.during;
      after += change.after;
      if (skips) after -= freedAt(list, part, skips.freed);
      work = Math.max(work, memoryOf(list.stageAt(part))?.workBytes ?? 0);
    }
    const come = skips?.come[index] ?? 0;
    yield { index, isEnd: false, bytes: level + come + during + work };
    level += after;
    yield { index, isEnd: true, bytes: level + come };
  }
}

/** Peak bytes of a worker. */
export interface WorkerBytes {
  /** Weights, in all versions that the worker keeps. */
  readonly weights: number;
  /** Gradients. */
  readonly gradients: number;
  /** States of the optimizer. */
  readonly optimizer: number;
  /**
   * Activations, memory of running actions, arrays of messages, and values that may have arrived over
   * skip edges however slow the worker is, at their peak: if freed memory is used again for anything.
   */
  readonly activations: number;
  /** The sum. */
  readonly peak: number;
}

/**
 * The memory of each worker of a schedule at its peak.
 *
 * @param stages The memory of each stage, in order.
 * @throws {RangeError} if the number of stages is not that of the schedule.
 *
 * @example 1F1B keeps fewer micro-batches on later workers
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, stageMemories, withLists } from "@troupe/troupe/schedules";
 *
 * const schedule = withLists(createSchedule("1f1b", { workers: 3, microBatches: 6 }));
 * const bytes = scheduleMemory(schedule, stageMemories(schedule, { weights: 10, activations: 5 }));
 * deepStrictEqual(bytes.map(({ activations }) => activations), [15, 10, 5]);
 * deepStrictEqual(bytes.map(({ peak }) => peak), [55, 50, 45]);
 * ```
 */
export function scheduleMemory(
  schedule: ListedSchedule,
  stages: readonly StageMemory[],
): WorkerBytes[] {
  const must = `the bytes must be of ${schedule.stages} stages`, count = stages.length;
  assertInput(count === schedule.stages, `count the memory of ${schedule.name}`, must, count);
  const memoryOf = (stage: number) => stages[stage];
  const skips = levelsOf(schedule, bytesOf(schedule.edges ?? []));
  return schedule.placement.map((copies, worker) => {
    const list = schedule.lists[worker]!, own = copies.map(({ stage }) => stages[stage]!);
    const sum = (bytes: (one: StageMemory) => number | undefined) =>
      own.reduce((total, one) => total + (bytes(one) ?? 0), 0);
    const versions = schedule.weightVersions[worker] ?? 1, fixed = heldBytes(own, versions);
    const levels = eachLevel(list, memoryOf, fixed, skips?.[worker]);
    const peak = levels.reduce((most, { bytes }) => Math.max(most, bytes), fixed);
    return {
      weights: versions * sum(({ weightBytes }) => weightBytes),
      gradients: sum(({ gradientBytes }) => gradientBytes),
      optimizer: sum(({ optimizerBytes }) => optimizerBytes),
      activations: peak - fixed,
      peak,
    };
  });
}

/** The memory of a model, and the limit of a worker. */
export interface MemoryBudget {
  /** Bytes of the model, which stages share. */
  readonly bytes: MemoryCosts;
  /** The most bytes that a worker may hold at a time. Default: unlimited. */
  readonly limitBytes?: number | undefined;
}

/** Formats bytes in MiB. */
export const inMiB = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

/**
 * The memory of each worker of a schedule, within a limit.
 *
 * @throws {RangeError} if a number is not usable, or a worker needs more than the limit; the text
 * names the worker, its bytes, and the part of them that is the same for any order of actions.
 *
 * @example
 * ```ts
 * import { throws } from "node:assert/strict";
 * import { createSchedule, withLists } from "@troupe/troupe/schedules";
 *
 * const bytes = { weights: 2 ** 20, activations: 2 ** 20 };
 * const gpipe = withLists(createSchedule("gpipe", { workers: 2, microBatches: 8 }));
 * throws(() => memoryWithin(gpipe, { bytes, limitBytes: 10 * 2 ** 20 }), {
 *   message: "Cannot make the schedule gpipe: each worker must need at most 10.0 MiB, received " +
 *     "12.0 MiB on worker 0, 4.0 MiB of it for weights, gradients and optimizer",
 * });
 * ```
 */
export function memoryWithin(
  schedule: ListedSchedule,
  { bytes, limitBytes = Infinity }: MemoryBudget,
): WorkerBytes[] {
  const workers = scheduleMemory(schedule, stageMemories(schedule, bytes));
  const fullest = workers.reduce((a, b) => b.peak > a.peak ? b : a),
    { peak, activations } = fullest;
  if (peak <= limitBytes) return workers;
  const fixed = `${inMiB(peak - activations)} of it for weights, gradients and optimizer`;
  const must = `each worker must need at most ${inMiB(limitBytes)}`;
  const received = `${inMiB(peak)} on worker ${workers.indexOf(fullest)}, ${fixed}`;
  throw refusal(`make the schedule ${schedule.name}`, must, received);
}

/**
 * The activations, in micro-batches of 1/P of the model, that fit within a limit together with 1/P of
 * the weights: the `activationLimit` for a schedule that reads one. Undefined without a limit, and if
 * the model is given in slices, as stages then differ.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * const bytes = { weights: 10, optimizer: 0, activations: 8 };
 * strictEqual(activationLimitOf({ bytes, limitBytes: 60 }), 5);
 * ```
 */
export function activationLimitOf({ bytes, limitBytes }: MemoryBudget): number | undefined {
  const { weights = 0, gradients = weights, activations = 0 } = bytes;
  const optimizer = bytes.optimizer ?? (typeof weights === "number" ? 2 * weights : weights);
  if (limitBytes === undefined) return undefined;
  if (typeof weights !== "number" || typeof gradients !== "number") return undefined;
  if (typeof optimizer !== "number" || typeof activations !== "number") return undefined;
  const room = limitBytes - weights - gradients - optimizer;
  return activations > 0 && room > 0 ? room / activations : undefined;
}
