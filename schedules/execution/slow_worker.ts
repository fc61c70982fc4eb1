/** Runs lists on paper with one worker as slow as can be: what may happen before its actions. */

import { type ActionList, KINDS } from "../actions/action_list.ts";
import type { ListedSchedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import { Dependencies } from "./dependencies.ts";

/** A plain part of an action that has run. */
export interface RanPart {
  /** Its kind. */
  readonly kind: "F" | "B" | "I" | "W" | "R";
  /** Its stage. */
  readonly stage: number;
  /** Its micro-batch. */
  readonly microBatch: number;
  /** How much of a micro-batch it is: a half or a slice is less than 1. */
  readonly share: number;
}

/**
 * Runs all others as far as they come before each action of one worker.
 *
 * @param ran gets each part that runs, with the first action of the slow worker that may run at the
 * same time or later; for its own parts that is their own action.
 */
export function runAround(
  schedule: ListedSchedule,
  slow: number,
  ran: (part: RanPart, before: number) => void,
): void {
  const { lists, workers, slices = 1 } = schedule;
  const dependencies = new Dependencies({ ...schedule, hosts: hostTable(schedule) }, lists);
  const given = new Uint8Array(dependencies.outputCount), { inputs, outputs } = dependencies;
  const next = new Int32Array(workers);
  const partOf = (list: ActionList, part: number) =>
    [
      list.kindAt(part),
      list.stageAt(part),
      list.microBatchAt(part),
      list.halfAt(part),
      list.sliceAt(part),
    ] as const;
  const isReady = (list: ActionList, index: number) => {
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      for (let i = dependencies.inputsOf(...partOf(list, part)) - 1; i >= 0; i--) {
        if (given[inputs[i]!] === 0) return false;
      }
    }
    return true;
  };
  const waiting: number[] = [];
  const finish = (list: ActionList, index: number) => {
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const [kind, stage, microBatch, half, slice] = partOf(list, part);
      const count = dependencies.outputsOf(kind, stage, microBatch, half, slice);
      for (let i = 0; i < count; i++) given[outputs[i]!] = 1;
      const share = half === 0 ? 1 / slices : 0.5;
      ran({ kind: KINDS[kind]!, stage, microBatch, share }, next[slow]!);
      const other = dependencies.waiting(kind, stage, microBatch);
      if (other >= 0 && other !== slow) waiting.push(other);
    }
  };
  for (let worker = workers - 1; worker >= 0; worker--) if (worker !== slow) waiting.push(worker);
  for (const own = lists[slow]!; next[slow]! < own.length;) {
    for (let worker = waiting.pop(); worker !== undefined; worker = waiting.pop()) {
      const list = lists[worker]!;
      for (; next[worker]! < list.length && isReady(list, next[worker]!); next[worker]!++) {
        finish(list, next[worker]!);
      }
    }
    if (!isReady(own, next[slow]!)) return;
    finish(own, next[slow]!);
    next[slow]!++;
  }
}
