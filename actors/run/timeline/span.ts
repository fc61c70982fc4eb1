/**
 * What a worker did in a step, with what its name says.
 *
 * @module
 */

import { type Action, type ActionKind, parseAction, parts } from "../../../schedules/mod.ts";
import type { TracedAction } from "../../pipeline/step.ts";

/** A traced action, read. */
export interface Span extends TracedAction {
  /** The worker, counted over all data-parallel replicas. */
  readonly worker: number;
  /** F, B, I, W or R, or several of them at once (`F&B`); a part of an all-reduce; a bucket. */
  readonly kind: ActionKind | "F&B" | "reduce" | "optimizer" | "other";
  /** The stages that it is of; none where its name does not say. */
  readonly stages: readonly number[];
  /** The plain actions that it ran; none of an all-reduce or the optimizer. */
  readonly actions: readonly Action[];
}

const ACTION = /^\d+[FBIWR]\d/;

/**
 * Reads what a worker did.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readSpan } from "@troupe/troupe/actors";
 *
 * const { kind, stages } = readSpan({ name: "reduce 0,3", start: 0, end: 1 }, 0);
 * assert.deepEqual([kind, stages], ["reduce", [0, 3]]);
 * ```
 */
export function readSpan(traced: TracedAction, worker: number): Span {
  const { name, stage } = traced, named = stage === undefined ? [] : [stage];
  if (ACTION.test(name)) {
    const actions = parts(parseAction(name)), kinds = new Set(actions.map(({ kind }) => kind));
    const stages = [...new Set(actions.map(({ stage }) => stage))];
    const kind = kinds.size === 1 ? actions[0]!.kind : "F&B";
    return { ...traced, worker, kind, stages, actions };
  }
  const [word, list = ""] = name.split(" ");
  if (word === "reduce") {
    const stages = list === "" ? named : list.split(",").map(Number);
    return { ...traced, worker, kind: "reduce", stages, actions: [] };
  }
  const kind = word === "optimizer" ? word : "other";
  return { ...traced, worker, kind, stages: named, actions: [] };
}

/** Whether it ran forwards or backwards. */
export const computes = ({ actions }: Span): boolean => actions.length > 0;
