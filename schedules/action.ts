/** The action: one piece of work that a worker does for one stage of the model. */

/**
 * F forward, B full backward, I backward for the input, W backward for the weights, R recompute:
 * computes again the activations that the forward did not keep.
 */
export type ActionKind = "F" | "B" | "I" | "W" | "R";

/**
 * A part of a micro-batch. If forwards run in parts (`Schedule.slices`), it is a slice of each sample's
 * sequence: forwards run first slice first, because each reads keys and values of the earlier ones,
 * and backwards last slice first. Otherwise only backwards run in parts, which are shares of the samples
 * and run in order.
 */
export interface Part {
  /** Its number among the parts of the micro-batch, from 0. */
  readonly index: number;
  /** The number of parts of the micro-batch. */
  readonly count: number;
}

/** The part of an action of a whole micro-batch. */
export const WHOLE: Part = { index: 0, count: 1 };

/** The parts of a micro-batch that is cut into `count`. */
export function cutInto(count: number): Part[] {
  return Array.from({ length: count }, (_, index) => ({ index, count }));
}

/** Returns true for the part of a backward that runs last; `slices` are those of the schedule. */
export function endsBackward({ part = WHOLE }: Action, slices = 1): boolean {
  return part.index === (slices > 1 ? 0 : part.count - 1);
}

/**
 * One piece of work: a kind, a stage and a micro-batch, such as `2F0`.
 *
 * It covers a whole micro-batch or a part of it: `2F0.1/4` is the second of four parts, `0B4.0` the first
 * of two. Two composed forms exist. A *doubled* forward (`0F4+5`) runs a second micro-batch in the same
 * call; an *overlap* (`0F1&7B0`) runs two actions at the same time: it starts when the inputs of both
 * have arrived, and both outputs leave at its end. The micro-batch determines the pipeline (`Schedule.pipelineOf`), so several workers may
 * hold one stage.
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
  /** Forward, backward, a part of a backward, or recomputation. */
  readonly kind: ActionKind;
  /** The stage of the model, from 0. */
  readonly stage: number;
  /** The micro-batch of the optimizer step, from 0. */
  readonly microBatch: number;
  /** The second micro-batch of a doubled forward. */
  readonly second?: number;
  /** The part of the micro-batch. Default: the whole. */
  readonly part?: Part;
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
    : { kind: "B", stage, microBatch, part: { index: half, count: 2 } };
}

/**
 * The backward of `stage` for its input, which the stage below waits for.
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
 * The backward of `stage` for its weights; only the optimizer waits for it.
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
 * The recomputation of `stage` on `microBatch`, between its forward, which then keeps only its input,
 * and its backward.
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
 * An action of one of `count` slices of its micro-batch's sequence.
 *
 * @example The forward of the second slice
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { F, formatAction, sliced } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(sliced(F(2, 0), 1, 4)), "2F0.1/4");
 * ```
 */
export function sliced(action: Action, index: number, count: number): Action {
  return { ...action, part: { index, count } };
}

/**
 * Two actions of one worker at the same time (DualPipe's F&B).
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, F, formatAction } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatAction(overlap(F(0, 1), B(7, 0))), "0F1&7B0");
 * ```
 */
export function overlap(first: Action, second: Action): Action {
  return { ...first, overlap: second };
}

/**
 * The plain actions of a composed action in written order: a doubled forward has two, an overlap two
 * or more; any other action is its only part.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual(parts(overlap(F(0, 4, 5), B(7, 0))), [F(0, 4), F(0, 5), B(7, 0)]);
 * ```
 */
export function parts(action: Action): Action[] {
  if (action.second === undefined && action.overlap === undefined) return [action];
  const { second, overlap, ...first } = action;
  const all = second === undefined ? [first] : [first, { ...first, microBatch: second }];
  return overlap === undefined ? all : [...all, ...parts(overlap)];
}

/**
 * Formats an action as in traces, pictures, CSV files and error messages.
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
  const { index, count = 0 } = action.part ?? {}, of = count === 2 ? "" : `/${count}`;
  const part = index === undefined ? "" : `.${index}${of}`;
  const other = action.overlap === undefined ? "" : `&${formatAction(action.overlap)}`;
  return `${action.stage}${action.kind}${action.microBatch}${second}${part}${other}`;
}

/**
 * Returns true for F, B, I and W of a whole micro-batch, which PyTorch has as well.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual([F(0, 4), F(0, 4, 5), B(0, 4, 1)].map(isPlain), [true, false, false]);
 * ```
 */
export function isPlain({ kind, second, part, overlap }: Action): boolean {
  return [second, part, overlap].every((field) => field === undefined) && kind !== "R";
}
