/**
 * Builds the graph of a layer, and says of which layer a mistake is.
 *
 * @module
 */

import { nameError } from "../name_error.ts";
import { GIVE_AND_TAKE } from "../graph/signatures.ts";
import type { Value } from "../graph/value.ts";
import type { AnyLayer, Handed, LayerGraph, TensorSpec } from "./layer.ts";

/**
 * What a layer builds in a graph: its output.
 *
 * @param x the output of the layer before, absent for the first.
 * @throws what `build` throws, of the same built-in class, with the layer's name before it.
 * @throws {TypeError} when it returns or gives what is neither a value of its graph nor a record of
 * such.
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
  let y: Handed;
  try {
    y = layer.build(g, x);
  } catch (cause) {
    throw nameError(cannot, cause, (told) =>
      // Only the first has no input.
      x === undefined && told.includes("undefined")
        ? `${told}; the first layer gets no input, and reads the micro-batch with g.batch`
        : told);
  }
  const problem = handedProblem(y) ?? givenProblem(g);
  if (problem) throw new TypeError(`${cannot}: ${problem}`);
  const made = [...handedValues(y).map(([, value]) => value), ...g.gives.values()];
  const foreign = made.find((value) => !g.owns(value));
  if (!foreign) return y;
  throw new TypeError(
    `${cannot}: its values must be of its own graph, received "${foreign.name}" of another${GIVE_AND_TAKE}`,
  );
}

/** What is wrong with what a layer returns. */
function handedProblem(y: unknown): string | undefined {
  if (isValue(y)) return undefined;
  const must = "build must return a value of its graph or a record of them, received";
  const kind = y === null ? "null" : typeof y !== "object" ? typeof y : y?.constructor?.name;
  if (kind !== "Object" && kind !== undefined) return `${must} ${kind}`;
  for (const [name, value] of Object.entries(y as object)) {
    if (!isValue(value)) return `${must} ${JSON.stringify(name)} of ${typeof value}`;
    const problem = nameProblem(name);
    if (problem) return `names of a record ${problem}`;
  }
}

/** What is wrong with what it gives. */
function givenProblem({ gives }: LayerGraph): string | undefined {
  for (const name of gives.keys()) {
    const problem = nameProblem(name);
    if (problem) return `names of what is given ${problem}`;
  }
}

/** Names are parts of names in ONNX models. */
const nameProblem = (name: string): string | undefined =>
  name !== "" && name.isWellFormed() && !name.includes("\0")
    ? undefined
    : `must be text without NUL, received ${JSON.stringify(name)}`;

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
