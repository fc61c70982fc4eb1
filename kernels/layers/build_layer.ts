/**
 * Builds the graph of a layer, and says of which layer a mistake is.
 *
 * @module
 */

import { nameError } from "../name_error.ts";
import type { Value } from "../graph/value.ts";
import type { AnyLayer, Handed, LayerGraph, TensorSpec } from "./layer.ts";

/**
 * What a layer builds in a graph: its output.
 *
 * @param x the output of the layer before, absent for the first.
 * @throws what `build` throws, of the same built-in class, with the layer's name before it.
 * @throws {TypeError} when it returns neither a value of a graph nor a record of them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { buildLayer, type Layer, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const dense: Layer = {
 *   name: "dense 2",
 *   build: (g, x) => g.gemm(x!, g.parameter("weight", [16, 2])),
 * };
 * const g = new LayerGraph();
 * assert.throws(() => buildLayer(dense, g, g.input("x", [8, 4])), {
 *   name: "RangeError",
 *   message: 'Cannot build the layer "dense 2": cannot multiply matrices: ' +
 *     "inner sizes must be equal, received [8,4] and [16,2]",
 * });
 * ```
 */
export function buildLayer(layer: AnyLayer, g: LayerGraph, x: Handed | undefined): Handed {
  const cannot = `Cannot build the layer ${JSON.stringify(layer.name)}`;
  let y: Handed | undefined;
  try {
    y = layer.build(g, x);
  } catch (cause) {
    throw nameError(cannot, cause, (told) =>
      // Only the first has no input.
      x === undefined && told.includes("undefined")
        ? `${told}; the first layer gets no input, and reads the micro-batch with g.batch`
        : told);
  }
  const isRecord = typeof y === "object" && y !== null && !isValue(y);
  const wrong = isRecord ? Object.entries(y).find(([, value]) => !isValue(value)) : undefined;
  if (isValue(y) || isRecord && !wrong) return y;
  const received = wrong ? `${JSON.stringify(wrong[0])} of ${typeof wrong[1]}` : typeof y;
  throw new TypeError(
    `${cannot}: build must return a value of its graph or a record of them, received ${received}`,
  );
}

/** Whether it is a value of a graph. */
export const isValue = (one: unknown): one is Value =>
  typeof one === "object" && one !== null && "shape" in one && Array.isArray(one.shape) &&
  "dtype" in one && typeof one.dtype === "string";

/** What is handed from layer to layer, by key: one value is `x`, an entry of a record `x.NAME`. */
export const handedValues = (handed: Handed): (readonly [key: string, value: Value])[] =>
  isValue(handed)
    ? [["x", handed]]
    : Object.entries(handed).map(([name, value]) => [`x.${name}`, value]);

/** The inputs of a graph for what the layer before hands on. */
export function inputsLike(g: LayerGraph, specs: readonly TensorSpec[]): Handed {
  const inputs = specs.map(({ name, shape, dtype }) =>
    [name, g.input(name, shape, dtype)] as const
  );
  const [first] = inputs;
  if (first?.[0] === "x") return first[1];
  return Object.fromEntries(inputs.map(([key, value]) => [key.slice("x.".length), value]));
}
