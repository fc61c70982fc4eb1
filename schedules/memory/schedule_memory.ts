/** The memory of each worker of a schedule at its peak, and who needs more than there is. */

import type { ActionList } from "../actions/action_list.ts";
import { bytesOf, levelsOf, peakOfSkips } from "../edges/skip_levels.ts";
import type { ListedSchedule } from "../schedule.ts";
import { changesOf, eachLevel, heldBytes } from "./memory_levels.ts";
import type { StageMemory } from "./stage_memory.ts";

/** Bytes of a worker at its peak. */
export interface WorkerBytes {
  /** Weights, in all versions that it keeps. */
  readonly weights: number;
  /** Gradients. */
  readonly gradients: number;
  /** States of the optimizer. */
  readonly optimizer: number;
  /**
   * Activations, what actions need while they run, arrays of messages, and what may have come over
   * skip edges however slow the worker is, when they are most: where memory that is freed serves
   * whatever comes next.
   */
  readonly activations: number;
  /** All of it. */
  readonly peak: number;
  /**
   * All of it where no stage gives back what it has had, as Troupe's kernels do: each its own most,
   * whenever that was.
   */
  readonly held: number;
}

/**
 * What each worker of a schedule holds at its peak.
 *
 * @param stages what each stage holds, in order.
 * @throws {RangeError} if there are not as many as the schedule has.
 *
 * @example 1F1B keeps fewer micro-batches on later workers
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import {
 *   createSchedule,
 *   scheduleMemory,
 *   stageMemories,
 *   withLists,
 * } from "@troupe/troupe/schedules";
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
  if (stages.length !== schedule.stages) {
    throw new RangeError(
      `Cannot count the memory of ${schedule.name}: the bytes must be of ${schedule.stages} ` +
        `stages, received ${stages.length}`,
    );
  }
  const memoryOf = (stage: number) => stages[stage];
  const skips = levelsOf(schedule, bytesOf(schedule.edges ?? []));
  return schedule.placement.map((copies, worker) => {
    const list = schedule.lists[worker]!, own = copies.map(({ stage }) => stages[stage]!);
    const sum = (bytes: (one: StageMemory) => number | undefined) =>
      own.reduce((total, one) => total + (bytes(one) ?? 0), 0);
    const versions = schedule.weightVersions[worker] ?? 1, fixed = heldBytes(own, versions);
    let peak = fixed;
    const visit = (_index: number, _isEnd: boolean, bytes: number) => peak = Math.max(peak, bytes);
    eachLevel(list, memoryOf, fixed, visit, skips?.[worker]);
    return {
      weights: versions * sum(({ weightBytes }) => weightBytes),
      gradients: sum(({ gradientBytes }) => gradientBytes),
      optimizer: sum(({ optimizerBytes }) => optimizerBytes),
      activations: peak - fixed,
      peak,
      held: fixed + sum(({ workBytes }) => workBytes) + ownPeaks(schedule, list, memoryOf) +
        (skips ? peakOfSkips(list, skips[worker]!) : 0),
    };
  });
}

/** The sum of what each copy of a stage holds when that holds most. */
function ownPeaks(
  { replicaOf, stages }: ListedSchedule,
  list: ActionList,
  memoryOf: (stage: number) => StageMemory | undefined,
): number {
  const levels = new Map<number, { now: number; most: number }>();
  const changeOf = changesOf(list, memoryOf);
  for (let part = 0; part < list.partCount; part++) {
    const copy = replicaOf[list.microBatchAt(part)]! * stages + list.stageAt(part);
    const level = levels.get(copy) ?? { now: 0, most: 0 }, { during, after } = changeOf(part);
    level.most = Math.max(level.most, level.now + during);
    level.now += after;
    levels.set(copy, level);
  }
  return levels.values().reduce((sum, { most }) => sum + most, 0);
}

/**
 * The worker that needs most, and whether that is within a limit.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { fullestWorker } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual(fullestWorker([3, 9, 4]), { worker: 1, bytes: 9 });
 * ```
 */
export function fullestWorker(
  bytes: readonly number[],
): { readonly worker: number; readonly bytes: number } {
  const most = bytes.reduce((a, b) => Math.max(a, b), 0);
  return { worker: Math.max(0, bytes.indexOf(most)), bytes: most };
}
