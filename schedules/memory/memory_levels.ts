/** Bytes of a worker over its list: what it holds all the time, and what its actions take and free. */

import { type ActionList, KIND } from "../actions/action_list.ts";
import { freedAt, type SkipLevels } from "../edges/skip_levels.ts";
import type { StageMemory } from "./stage_memory.ts";

/** A number of bytes over time. */
export interface MemoryCurve {
  /** When it changes, ascending, from 0. */
  readonly timesMs: readonly number[];
  /** What is held from each time on. */
  readonly bytes: readonly number[];
}

/** The bytes that a worker holds whatever it runs. */
export function heldBytes(
  stages: readonly (StageMemory | undefined)[],
  versions: number,
): number {
  return stages.reduce((sum, memory) => {
    const { weightBytes = 0, gradientBytes = 0, optimizerBytes = 0 } = memory ?? {};
    return sum + versions * weightBytes + gradientBytes + optimizerBytes;
  }, 0);
}

/** What a part of a list changes: what is there while it runs, and what is left at its end. */
export interface Change {
  readonly during: number;
  readonly after: number;
}

/**
 * What each part of a list changes, in the order of the list.
 *
 * A half backward is half of all, and so is a slice its part: halves and slices come in full numbers
 * by the end of a step.
 *
 * @returns a function to be called once for each part, in order.
 */
export function changesOf(
  list: ActionList,
  memoryOf: (stage: number) => StageMemory | undefined,
): (part: number) => Change {
  /** What an R has brought back, and no backward has read yet. */
  const recomputed = new Set<string>(), { slices } = list;
  const cellOf = (part: number) =>
    `${list.stageAt(part)} ${list.microBatchAt(part)} ${list.sliceAt(part)}`;
  return (part) => {
    const memory = memoryOf(list.stageAt(part)), kind = list.kindAt(part);
    if (memory === undefined) return { during: 0, after: 0 };
    const share = (list.halfAt(part) === 0 ? 1 : 0.5) / slices;
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
    // The second half of a backward finds what R has brought back, too.
    const isThere = recomputed.size > 0 &&
      (list.halfAt(part) === 1 ? recomputed.has(cellOf(part)) : recomputed.delete(cellOf(part)));
    const brought = isThere ? 0 : recomputedBytes;
    const freed = kind === KIND.I ? freedByInputBytes : all;
    return change(brought, brought - freed - messageBytes);
  };
}

/**
 * Goes through the bytes of a worker: at the start of each action, and at its end. What comes over
 * skip edges while an action runs counts from its start.
 *
 * @param visit gets the index of the action, whether it ends there, and the bytes from then on.
 */
export function eachLevel(
  list: ActionList,
  memoryOf: (stage: number) => StageMemory | undefined,
  held: number,
  visit: (index: number, isEnd: boolean, bytes: number) => void,
  skips?: SkipLevels,
): void {
  const changeOf = changesOf(list, memoryOf), { slices } = list;
  let level = held;
  for (let index = 0; index < list.length; index++) {
    let during = 0, after = 0, work = 0;
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      const change = changeOf(part);
      during += change.during;
      after += change.after;
      if (skips) after -= freedAt(list, part, skips.freed) / slices;
      work = Math.max(work, memoryOf(list.stageAt(part))?.workBytes ?? 0);
    }
    const come = skips?.come[index] ?? 0;
    visit(index, false, level + come + during + work);
    level += after;
    visit(index, true, level + come);
  }
}
