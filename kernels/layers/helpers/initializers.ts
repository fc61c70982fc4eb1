/**
 * First values of parameters that keep the size of what flows through them, as PyTorch's `nn.init` has
 * them: Glorot and Bengio (2010), called Xavier, and He et al. (2015), called Kaiming.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import type { Initializer } from "../layer.ts";

/** What Xavier's bounds are multiplied by. */
export interface XavierOptions {
  /** 1 unless given; 5/3 before a tanh, √2 before a ReLU. */
  readonly gain?: number;
}

/** What Kaiming's bounds are made of. */
export interface KaimingOptions {
  /** √2 unless given, as before a ReLU; 1 where nothing follows. */
  readonly gain?: number;
  /** Whether to keep the size of what goes forward (`in`, unless given) or backward (`out`). */
  readonly fan?: "in" | "out";
}

/**
 * Inputs of an output of a weight, and outputs of an input: [out, in, ...kernel], PyTorch's layout.
 *
 * @throws {RangeError} when the shape has fewer than two sizes, or one that is not positive.
 */
function fans(shape: readonly number[]): { readonly in: number; readonly out: number } {
  const [outputs, inputs, ...kernel] = shape;
  if (outputs === undefined || inputs === undefined || !(elementCount(shape) > 0)) {
    throw new RangeError(
      `Cannot initialise a weight: its shape must be [out, in, ...kernel], received [${shape}]`,
    );
  }
  return { in: inputs * elementCount(kernel), out: outputs * elementCount(kernel) };
}

const normal = (deviation: number): Initializer => ({ kind: "normal", deviation });

/** The uniform one of a standard deviation, around 0. */
const uniform = (deviation: number): Initializer => {
  const high = Math.sqrt(3) * deviation;
  return { kind: "uniform", low: -high, high };
};

function xavierDeviation(shape: readonly number[], { gain = 1 }: XavierOptions): number {
  const { in: inputs, out: outputs } = fans(shape);
  return gain * Math.sqrt(2 / (inputs + outputs));
}

const kaimingDeviation = (
  shape: readonly number[],
  { gain = Math.SQRT2, fan = "in" }: KaimingOptions,
): number => gain / Math.sqrt(fans(shape)[fan]);

/**
 * Uniform within ±gain·√(6 ÷ (in + out)).
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when it is none of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { xavierUniform } from "@troupe/troupe/kernels";
 *
 * const { low, high } = xavierUniform([8, 16]) as { low: number; high: number };
 * assert.ok(Math.abs(high - 0.5) < 1e-12 && low === -high);
 * ```
 */
export const xavierUniform = (
  shape: readonly number[],
  options: XavierOptions = {},
): Initializer => uniform(xavierDeviation(shape, options));

/**
 * Normal with deviation gain·√(2 ÷ (in + out)).
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when it is none of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { xavierNormal } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(xavierNormal([2, 6]), { kind: "normal", deviation: 0.5 });
 * ```
 */
export const xavierNormal = (
  shape: readonly number[],
  options: XavierOptions = {},
): Initializer => normal(xavierDeviation(shape, options));

/**
 * Uniform within ±gain·√(3 ÷ in), or out.
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when it is none of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { kaimingUniform } from "@troupe/troupe/kernels";
 *
 * const { high } = kaimingUniform([4, 6, 3, 3], { gain: 1 }) as { high: number };
 * assert.ok(Math.abs(high - Math.sqrt(3 / 54)) < 1e-12);
 * ```
 */
export const kaimingUniform = (
  shape: readonly number[],
  options: KaimingOptions = {},
): Initializer => uniform(kaimingDeviation(shape, options));

/**
 * Normal with deviation gain ÷ √in, or out.
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when it is none of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { kaimingNormal } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(kaimingNormal([3, 16], { gain: 1 }), { kind: "normal", deviation: 0.25 });
 * assert.throws(() => kaimingNormal([3]), /must be \[out, in, ...kernel\], received \[3\]/);
 * ```
 */
export const kaimingNormal = (
  shape: readonly number[],
  options: KaimingOptions = {},
): Initializer => normal(kaimingDeviation(shape, options));

/**
 * What PyTorch's linear maps and convolutions begin with, weight and bias alike: uniform within ±1/√in.
 *
 * @param shape of the weight, [out, in, ...kernel].
 */
export const torchDefault = (shape: readonly number[]): Initializer =>
  kaimingUniform(shape, { gain: 1 / Math.sqrt(3) });
