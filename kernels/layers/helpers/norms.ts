/**
 * Normalisations: `nn.LayerNorm`, `nn.GroupNorm` and `nn.RMSNorm` of PyTorch.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import type { Initializer, LayerGraph } from "../layer.ts";
import { parameterName } from "./parameter_name.ts";

/** Options of {@linkcode layerNorm} and {@linkcode rmsNorm}. */
export interface NormOptions {
  /** Put before the names of the parameters, with a dot; nothing unless given. */
  readonly name?: string | undefined;
  /** Added to what the root is taken of; 1e-5 unless given. */
  readonly epsilon?: number;
}

/** Options of {@linkcode groupNorm}. */
export interface GroupNormOptions extends NormOptions {
  /** Groups of channels; must divide their number. */
  readonly groups: number;
}

const ZERO: Initializer = { kind: "constant", value: 0 };
const ONE: Initializer = { kind: "constant", value: 1 };

/** The parameters `weight` and `bias`. */
const affine = (g: LayerGraph, name: string | undefined, size: number): [Value, Value] => [
  g.parameter(parameterName(name, "weight"), [size], ONE),
  g.parameter(parameterName(name, "bias"), [size], ZERO),
];

/**
 * LayerNorm (Ba, Kiros, Hinton 2016) over the last axis, with the parameters `weight` and `bias`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { layerNorm, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 5, 8]);
 * assert.deepEqual(layerNorm(g, x, { name: "ln" }).shape, [2, 5, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["ln.weight", "ln.bias"]);
 * ```
 */
export function layerNorm(
  g: LayerGraph,
  x: Value,
  { name, epsilon = 1e-5 }: NormOptions = {},
): Value {
  return g.layerNorm(x, ...affine(g, name, x.shape.at(-1)!), epsilon);
}

/**
 * x ÷ √(mean of x² + ε) · `weight` over the last axis (Zhang, Sennrich 2019).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { LayerGraph, rmsNorm } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 5, 8]);
 * assert.deepEqual(rmsNorm(g, x, { name: "norm", epsilon: 1e-6 }).shape, [2, 5, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["norm.weight"]);
 * ```
 */
export function rmsNorm(
  g: LayerGraph,
  x: Value,
  { name, epsilon = 1e-5 }: NormOptions = {},
): Value {
  const weight = g.parameter(parameterName(name, "weight"), [x.shape.at(-1)!], ONE);
  return g.rmsNorm(x, weight, epsilon);
}

/**
 * GroupNorm (Wu, He 2018): x [samples, channels, ...] is normalised within each group of channels of a
 * sample, then scaled and moved channel by channel, by the parameters `weight` and `bias`.
 *
 * @throws {RangeError} when the groups do not divide the channels.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { groupNorm, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 6, 4, 4]);
 * assert.deepEqual(groupNorm(g, x, { groups: 3 }).shape, [2, 6, 4, 4]);
 * assert.throws(() => groupNorm(g, x, { name: "other", groups: 4 }), /divide the channels, 6, received 4/);
 * ```
 */
export function groupNorm(
  g: LayerGraph,
  x: Value,
  { name, groups, epsilon = 1e-5 }: GroupNormOptions,
): Value {
  return g.groupNorm(x, groups, ...affine(g, name, x.shape[1]!), epsilon);
}
