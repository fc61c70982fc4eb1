/** Lowering: passes that add what computation implies, messages first, then what ends the step. */

import { type Action, formatAction, parts } from "../actions/action.ts";
import { KIND } from "../actions/action_list.ts";
import type { ListedSchedule } from "../execution/execute.ts";
import { hostTable } from "../schedule.ts";

/** A message between two workers: the output of a forward, or the gradient of a backward. */
export interface Transfer {
  /** Who does what with which message; the names are PyTorch's. */
  readonly kind: "SEND_F" | "RECV_F" | "SEND_B" | "RECV_B";
  /** The stage that sends or receives. */
  readonly stage: number;
  /** The micro-batch. */
  readonly microBatch: number;
  /** The half of the micro-batch, where the backward is halved. */
  readonly half?: 0 | 1;
  /** The worker at the other end. */
  readonly peer: number;
}

/** What ends a step for a copy of a stage: the sum over its copies, the optimizer. */
export interface Closing {
  /** The all-reduce of the gradients, or the step of the optimizer. */
  readonly kind: "REDUCE_GRAD" | "STEP";
  /** The stage. */
  readonly stage: number;
  /** The replica of the pipeline. */
  readonly replica: number;
}

/** An action of a lowered list. */
export type LoweredAction = Action | Transfer | Closing;

/**
 * Adds a receive before each action that needs a message, and a send after each that gives one.
 * Stages that are neighbours on one worker need none.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import * as schedules from "@troupe/troupe/schedules";
 *
 * const made = schedules.createSchedule("1f1b", { workers: 2, microBatches: 1 });
 * const schedule = schedules.withLists(made);
 * const lowered = [...schedules.addTransfers(schedule, 0, schedule.lists[0] ?? [])];
 * strictEqual(lowered.map(schedules.formatLowered).join(), "0F0,0SEND_F0,0RECV_B0,0B0");
 * ```
 */
export function* addTransfers(
  schedule: ListedSchedule,
  worker: number,
  actions: Iterable<LoweredAction>,
): Iterable<LoweredAction> {
  const hosts = hostTable(schedule);
  const halved = halvedBackwards(schedule);
  const last = schedule.stages - 1;
  const peerOf = (stage: number, microBatch: number) =>
    hosts[(schedule.replicaOf[microBatch] ?? 0) * schedule.stages + stage] as number;
  for (const action of actions) {
    if (!isCompute(action)) {
      yield action;
      continue;
    }
    for (const { kind, stage, microBatch, half } of parts(action)) {
      const isForward = kind === "F";
      if (kind === "W" || stage === (isForward ? 0 : last)) continue;
      const source = isForward ? stage - 1 : stage + 1;
      const peer = peerOf(source, microBatch);
      if (peer === worker) continue;
      const receive: Transfer = { kind: isForward ? "RECV_F" : "RECV_B", stage, microBatch, peer };
      if (isForward || !halved.has(source * schedule.microBatches + microBatch)) yield receive;
      else if (half === undefined) {
        yield* [{ ...receive, half: 0 }, { ...receive, half: 1 }] as const;
      } else yield { ...receive, half };
    }
    yield action;
    for (const { kind, stage, microBatch, half } of parts(action)) {
      const isForward = kind === "F";
      if (kind === "W" || stage === (isForward ? last : 0)) continue;
      const peer = peerOf(isForward ? stage + 1 : stage - 1, microBatch);
      if (peer === worker) continue;
      const send: Transfer = { kind: isForward ? "SEND_F" : "SEND_B", stage, microBatch, peer };
      yield half === undefined ? send : { ...send, half };
    }
  }
}

/**
 * Adds what ends the step: where stages have several copies an all-reduce of each stage as soon as
 * its last gradient on this worker is there, and the optimizer step of every stage at the end. With
 * updates after every backward (PipeDream) the optimizer steps there, and nothing is reduced.
 *
 * @example Chimera has two copies of each stage
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { addClosing, createSchedule, formatLowered, withLists } from "@troupe/troupe/schedules";
 *
 * const schedule = withLists(createSchedule("chimera", { workers: 2, microBatches: 2 }));
 * const lowered = [...addClosing(schedule, 0, schedule.lists[0] ?? [])];
 * strictEqual(
 *   lowered.map(formatLowered).join(),
 *   "0F0,1F1,1B1,1REDUCE_GRAD1,0B0,0REDUCE_GRAD0,0STEP0,1STEP1",
 * );
 * ```
 */
export function* addClosing(
  schedule: ListedSchedule,
  worker: number,
  actions: Iterable<LoweredAction>,
): Iterable<LoweredAction> {
  const { replicaOf } = schedule;
  const isEarly = schedule.updates === "every-backward";
  const held = schedule.placement[worker] ?? [];
  const copies = new Set(schedule.placement.flat().map(({ replica }) => replica)).size;
  const left = gradientCounts(schedule, worker);
  // What follows a gradient lets its message go first: others wait for that.
  const due: Closing[] = [];
  for (const action of actions) {
    if (!action.kind.startsWith("SEND")) yield* due.splice(0);
    yield action;
    if (!isCompute(action)) continue;
    for (const { kind, stage, microBatch, half } of parts(action)) {
      if (kind === "F" || kind === "I") continue;
      const replica = replicaOf[microBatch] ?? 0;
      const copy = replica * schedule.stages + stage;
      const remaining = (left.get(copy) ?? 0) - 1;
      left.set(copy, remaining);
      if (isEarly && half !== 0) due.push({ kind: "STEP", stage, replica });
      else if (remaining === 0 && copies > 1) due.push({ kind: "REDUCE_GRAD", stage, replica });
    }
  }
  yield* due;
  if (isEarly) return;
  for (const { stage, replica } of held) yield { kind: "STEP", stage, replica };
}

/**
 * The list of one worker after both passes.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, formatLowered, lower, withLists } from "@troupe/troupe/schedules";
 *
 * const schedule = withLists(createSchedule("1f1b", { workers: 2, microBatches: 1 }));
 * const lowered = [...lower(schedule, 1)].map(formatLowered);
 * strictEqual(lowered.join(), "1RECV_F0,1F0,1B0,1SEND_B0,1STEP0");
 * ```
 */
export function lower(schedule: ListedSchedule, worker: number): Iterable<LoweredAction> {
  const computation = schedule.lists[worker] ?? [];
  return addClosing(schedule, worker, addTransfers(schedule, worker, computation));
}

/**
 * The name of a lowered action: `0SEND_F3`, `1RECV_B4.0`; a closing action bears its replica,
 * `0REDUCE_GRAD1`.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { formatLowered } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatLowered({ kind: "SEND_F", stage: 0, microBatch: 3, peer: 1 }), "0SEND_F3");
 * ```
 */
export function formatLowered(action: LoweredAction): string {
  if (isCompute(action)) return formatAction(action);
  if ("replica" in action) return `${action.stage}${action.kind}${action.replica}`;
  const half = action.half === undefined ? "" : `.${action.half}`;
  return `${action.stage}${action.kind}${action.microBatch}${half}`;
}

function isCompute(action: LoweredAction): action is Action {
  return action.kind === "F" || action.kind === "B" || action.kind === "I" || action.kind === "W";
}

/** The (stage, micro-batch) pairs whose backward runs in halves. */
function halvedBackwards({ lists, microBatches }: ListedSchedule): Set<number> {
  const halved = new Set<number>();
  for (const list of lists) {
    for (let part = 0; part < list.partCount; part++) {
      if (list.halfAt(part) === 0) continue;
      halved.add(list.stageAt(part) * microBatches + list.microBatchAt(part));
    }
  }
  return halved;
}

/** For each copy of a stage on a worker, the number of its B and W parts. */
function gradientCounts(schedule: ListedSchedule, worker: number): Map<number, number> {
  const counts = new Map<number, number>();
  const list = schedule.lists[worker];
  for (let part = 0; part < (list?.partCount ?? 0); part++) {
    const kind = list?.kindAt(part);
    if (list === undefined || kind === KIND.F || kind === KIND.I) continue;
    const replica = schedule.replicaOf[list.microBatchAt(part)] ?? 0;
    const copy = replica * schedule.stages + list.stageAt(part);
    counts.set(copy, (counts.get(copy) ?? 0) + 1);
  }
  return counts;
}
