/**
 * Adds a node of a file to a graph.
 *
 * @module
 */

import { elementCount, ELEMENTS_MAX } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import type { LayerGraph } from "../layers/layer.ts";
import { nameError } from "../name_error.ts";
import type { OnnxNode } from "./file/onnx_node.ts";
import { IMPORT_OPS } from "./ops/table.ts";
import { quoted, shown } from "./file/quoted.ts";

/**
 * Adds what a node computes.
 *
 * @param inputs what it reads.
 * @throws {TypeError} when its operation, or how it is set, is not understood.
 * @throws {RangeError} when its inputs do not fit together.
 */
export function addNode(
  g: LayerGraph,
  node: OnnxNode,
  inputs: readonly (Value | undefined)[],
): readonly Value[] {
  const { name, op } = node, add = Object.hasOwn(IMPORT_OPS, op) ? IMPORT_OPS[op] : undefined;
  if (!add) {
    throw new TypeError(
      `Cannot import the ONNX model: its operations must be among those that are understood, received ${
        shown(op)
      } (node ${quoted(name)})`,
    );
  }
  try {
    const made = add({ g, node, inputs }), values = "shape" in made ? [made] : made;
    for (const { shape } of values) checkSizes(shape);
    return values;
  } catch (cause) {
    throw nameError(`Cannot import ${op} of the ONNX model (node ${quoted(name)})`, cause);
  }
}

/** Sizes of a file may be anything; a run would allocate them. */
function checkSizes(shape: readonly number[]): void {
  if (shape.every((size) => size >= 0) && elementCount(shape) <= ELEMENTS_MAX) return;
  throw new RangeError(
    `Cannot compute what it makes: sizes must be from 0 and their product at most ${ELEMENTS_MAX}, received [${shape}]`,
  );
}
