/**
 * Builds the graph of a layer, and says of which layer a mistake is.
 *
 * @module
 */

import { nameError } from "../name_error.ts";
import type { Value } from "../graph/value.ts";
import type { Layer, LayerGraph } from "./layer.ts";

/**
 * What a layer builds in a graph: its output.
 *
 * @param x the output of the layer before, absent for the first.
 * @throws what `build` throws, of the same built-in class, with the layer's name before it.
 * @throws {TypeError} when it returns no value of a graph.
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
export function buildLayer(layer: Layer, g: LayerGraph, x: Value | undefined): Value {
  const cannot = `Cannot build the layer ${JSON.stringify(layer.name)}`;
  let y: Value | undefined;
  try {
    y = layer.build(g, x);
  } catch (cause) {
    throw nameError(cannot, cause, (told) =>
      // Only the first has no input.
      x === undefined && told.includes("undefined")
        ? `${told}; the first layer gets no input, and reads the micro-batch with g.batch`
        : told);
  }
  if (Array.isArray(y?.shape) && typeof y.dtype === "string") return y;
  throw new TypeError(`${cannot}: build must return a value of its graph, received ${typeof y}`);
}
