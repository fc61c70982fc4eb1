/**
 * Linear maps: `nn.Linear` of PyTorch.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import type { Initializer, LayerGraph } from "../layer.ts";
import { torchDefault } from "./initializers.ts";
import { parameterName } from "./parameter_name.ts";

/** Options of {@linkcode linear}. */
export interface LinearOptions {
  /** Put before the names of the parameters, with a dot; nothing unless given. */
  readonly name?: string | undefined;
  /** Width of the result. */
  readonly outputs: number;
  /** Whether there is a bias; true unless given. */
  readonly bias?: boolean;
  /** First values of the weight; uniform within ±1/√inputs unless given, as those of the bias. */
  readonly initializer?: Initializer;
}

/**
 * x·Wᵀ + b over the last axis: x [..., inputs] gives [..., outputs]. Parameters are `weight` [outputs,
 * inputs] and `bias` [outputs].
 *
 * @throws {RangeError} when x has no axis.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { LayerGraph, linear } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph();
 * const y = linear(g, g.input("x", [2, 5, 8]), { name: "fc", outputs: 3 });
 * assert.deepEqual(y.shape, [2, 5, 3]);
 * assert.deepEqual(g.parameters.map(({ spec: { name, shape } }) => [name, shape]), [
 *   ["fc.weight", [3, 8]],
 *   ["fc.bias", [3]],
 * ]);
 * ```
 */
export function linear(
  g: LayerGraph,
  x: Value,
  { name, outputs, bias: hasBias = true, initializer }: LinearOptions,
): Value {
  const inputs = x.shape.at(-1);
  if (inputs === undefined) {
    throw new RangeError("Cannot apply a linear map: x must be [..., inputs], received []");
  }
  const shape = [outputs, inputs], own = torchDefault(shape);
  const weight = g.parameter(parameterName(name, "weight"), shape, initializer ?? own);
  const bias = hasBias ? g.parameter(parameterName(name, "bias"), [outputs], own) : undefined;
  const outer = x.shape.slice(0, -1), rows = outer.reduce((product, size) => product * size, 1);
  const product = g.gemm(g.reshape(x, [rows, inputs]), weight, bias, { transB: true });
  return g.reshape(product, [...outer, outputs]);
}
