/** The action: one piece of work that a worker does for one stage of the model. */

/**
 * F forward, B full backward, I backward for the input, W backward for the weights, R recompute:
 * brings back what the forward did not keep.
 */
export type ActionKind = "F" | "B" | "I" | "W" | "R";

/**
 * One piece of work: a kind, a stage and a micro-batch, such as `2F0`.
 *
 * It may be of one slice of its micro-batch's sequence (`2F0s1`): forwards of slices run in order, as
 * each reads what the earlier ones kept, and backwards in reverse. Three composed forms exist. A *doubled* forward (`0F4+5`) runs a second micro-batch in the same
 * call; a *half* backward (`0B4.0`) runs one half of the samples of its micro-batch; an *overlap*
 * (`0F1&7B0`) runs two actions at the same time: it starts when the inputs of both are there, and
 * gives both outputs at its end. The replica of the pipeline is that of the micro-batch
 * (`Schedule.replicaOf`), so one stage may sit on several workers.
 *
 * @example A forward of stage 2 on micro-batch 0
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { type Action, formatAction } from "@troupe/troupe/schedules";
 *
 * const action: Action = { kind: "F", stage: 2, microBatch: 0 };
 * strictEqual(formatAction(action), "2F0");
 * ```
 */
export interface Action {
  /** What is computed. */
  readonly kind: ActionKind;
  /** The stage of the model, from 0. */
  readonly stage: number;
  /** The micro-batch of the optimizer step, from 0. */
  readonly microBatch: number;
  /** The second micro-batch of a doubled forward. */
  readonly second?: number;
  /** Which half of the micro-batch a half backward computes. */
  readonly half?: 0 | 1;
  /** Which slice of the micro-batch's sequence, from 0; the whole sequence unless given. */
  readonly slice?: number;
  /** The action that runs at the same time as this one; it has no `overlap` itself. */
  readonly overlap?: Action;
}

/**
 * A forward of `stage` on `microBatch`, or on two micro-batches in one call.
 *
 * @example A doubled forward
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { F, formatAction } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(F(0, 4, 5)), "0F4+5");
 * ```
 */
export function F(stage: number, microBatch: number, second?: number): Action {
  return second === undefined
    ? { kind: "F", stage, microBatch }
    : { kind: "F", stage, microBatch, second };
}

/**
 * A full backward of `stage` on `microBatch`, or on one half of it.
 *
 * @example The second half of a backward
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, formatAction } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(B(0, 4, 1)), "0B4.1");
 * ```
 */
export function B(stage: number, microBatch: number, half?: 0 | 1): Action {
  return half === undefined
    ? { kind: "B", stage, microBatch }
    : { kind: "B", stage, microBatch, half };
}

/**
 * The backward of `stage` for its input; the part that the stage below waits for.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { formatAction, I } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(I(1, 0)), "1I0");
 * ```
 */
export function I(stage: number, microBatch: number): Action {
  return { kind: "I", stage, microBatch };
}

/**
 * The backward of `stage` for its weights; nothing waits for it but the optimizer.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { formatAction, W } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(W(1, 0)), "1W0");
 * ```
 */
export function W(stage: number, microBatch: number): Action {
  return { kind: "W", stage, microBatch };
}

/**
 * The recomputation of `stage` on `microBatch`: between its forward, which then keeps no more than its
 * input, and its backward.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { formatAction, R } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(R(2, 0)), "2R0");
 * ```
 */
export function R(stage: number, microBatch: number): Action {
  return { kind: "R", stage, microBatch };
}

/**
 * An action of one slice of its micro-batch's sequence.
 *
 * @example The forward of the second slice
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { F, formatAction, sliced } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(sliced(F(2, 0), 1)), "2F0s1");
 * ```
 */
export function sliced(action: Action, slice: number): Action {
  return { ...action, slice };
}

/**
 * Two actions of one worker at the same time (DualPipe's F&B).
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, F, formatAction, overlap } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(overlap(F(0, 1), B(7, 0))), "0F1&7B0");
 * ```
 */
export function overlap(first: Action, second: Action): Action {
  return { ...first, overlap: second };
}

/**
 * The plain actions that a composed action consists of, in the order in which they are written: a
 * doubled forward is two, an overlap is two or more, any other action is itself.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, overlap, parts } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual(parts(overlap(F(0, 4, 5), B(7, 0))), [F(0, 4), F(0, 5), B(7, 0)]);
 * ```
 */
export function parts(action: Action): Action[] {
  if (action.second === undefined && action.overlap === undefined) return [action];
  const { kind, stage, microBatch, second, half, slice } = action;
  const first: Action = {
    kind,
    stage,
    microBatch,
    ...(half === undefined ? {} : { half }),
    ...(slice === undefined ? {} : { slice }),
  };
  const all = second === undefined ? [first] : [first, { ...first, microBatch: second }];
  return action.overlap === undefined ? all : [...all, ...parts(action.overlap)];
}

/**
 * The name of an action as traces, pictures, CSV files and error messages print it.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { formatAction } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction({ kind: "B", stage: 1, microBatch: 7 }), "1B7");
 * ```
 */
export function formatAction(action: Action): string {
  const second = action.second === undefined ? "" : `+${action.second}`;
  const half = action.half === undefined ? "" : `.${action.half}`;
  const slice = action.slice === undefined ? "" : `s${action.slice}`;
  const other = action.overlap === undefined ? "" : `&${formatAction(action.overlap)}`;
  return `${action.stage}${action.kind}${action.microBatch}${second}${half}${slice}${other}`;
}

/**
 * Whether an action is of a whole micro-batch and one of F, B, I and W, which PyTorch has, too.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, isPlain } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual([F(0, 4), F(0, 4, 5), B(0, 4, 1)].map(isPlain), [true, false, false]);
 * ```
 */
export function isPlain({ kind, second, half, slice, overlap }: Action): boolean {
  return [second, half, slice, overlap].every((part) => part === undefined) && kind !== "R";
}

/** Characters that are shown. */
const SHOWN_MAX = 80;

/**
 * The text on one line, its control characters as JSON writes them, cut where it is long.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * strictEqual(quoted("0F0\n"), '"0F0\\n"');
 * ```
 */
export function quoted(text: string): string {
  return JSON.stringify(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text);
}
