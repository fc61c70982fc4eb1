/** Bytes of a worker over a step: what it holds all the time, and what its actions take and free. */

import { type ActionList, KIND } from "../actions/action_list.ts";
import type { StageMemory } from "./step_model.ts";

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

/** What an action of a list changes: what is there while it runs, and what is left at its end. */
interface Change {
  readonly during: number;
  readonly after: number;
}

/**
 * Goes through the changes of a worker's memory: at the start of each action, and at its end.
 *
 * @param visit gets the index of the action, whether it ends there, and the bytes from then on.
 */
export function eachLevel(
  list: ActionList,
  memoryOf: (stage: number) => StageMemory | undefined,
  held: number,
  visit: (index: number, isEnd: boolean, bytes: number) => void,
): void {
  const recomputed = new Set<number>();
  let level = held;
  for (let index = 0; index < list.length; index++) {
    const { during, after } = changeOf(list, index, memoryOf, recomputed);
    visit(index, false, level + during);
    level += after;
    visit(index, true, level);
  }
}

function changeOf(
  list: ActionList,
  index: number,
  memoryOf: (stage: number) => StageMemory | undefined,
  recomputed: Set<number>,
): Change {
  let during = 0, after = 0, work = 0;
  for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
    const stage = list.stageAt(part), memory = memoryOf(stage);
    if (memory === undefined) continue;
    const { keptBytes, recomputedBytes = 0, freedByInputBytes = 0, workBytes = 0 } = memory;
    const share = list.halfAt(part) === 0 ? 1 : 0.5, kind = list.kindAt(part);
    const key = list.microBatchAt(part) * 2 ** 25 + stage;
    work = Math.max(work, workBytes);
    const all = keptBytes + recomputedBytes;
    if (kind === KIND.F) {
      during += keptBytes;
      after += keptBytes;
    } else if (kind === KIND.W) after -= all - freedByInputBytes;
    else {
      const isThere = recomputed.delete(key);
      if (!isThere) during += share * recomputedBytes;
      const brought = isThere ? 0 : share * recomputedBytes;
      after += brought - share * (kind === KIND.I ? freedByInputBytes : all);
    }
  }
  return { during: during + work, after };
}
