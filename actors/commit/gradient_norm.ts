/**
 * The norm of all gradients of a step, and what clipping makes of it.
 *
 * @module
 */

/** Sums of squares of gradients, by full name of the parameter. */
export type GradientSquares = ReadonlyMap<string, number>;

/** The norm of all gradients: sums of squares added in f64 in the order of parameter names. */
export function gradientNorm(squares: GradientSquares): number {
  let sum = 0;
  for (const name of [...squares.keys()].sort()) sum += squares.get(name)!;
  return Math.sqrt(sum);
}

/** The norm of all gradients of a step: the mean of those of its updates. */
export function meanNorm(updates: readonly GradientSquares[]): number {
  return updates.reduce((sum, squares) => sum + gradientNorm(squares), 0) / updates.length;
}

/** Keeps the clip factor finite where the norm is zero, as in PyTorch. */
const CLIP_EPSILON = 1e-6;

/**
 * What clipping multiplies all gradients by, as PyTorch's `clip_grad_norm_` does.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { clipFactor } from "@troupe/troupe/actors";
 *
 * const squares = new Map([["a.weight", 9], ["b.weight", 16]]);
 * assert.equal(clipFactor(undefined, squares, 1), 1);
 * assert.ok(Math.abs(clipFactor(1, squares, 1) - 1 / 5) < 1e-6);
 * ```
 */
export function clipFactor(
  clip: number | undefined,
  squares: GradientSquares,
  lossScale: number,
): number {
  if (clip === undefined) return 1;
  return Math.min(1, clip / (gradientNorm(squares) / lossScale + CLIP_EPSILON));
}
