/**
 * Adds a node of a file to a graph.
 *
 * @module
 */

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
    const made = add({ g, node, inputs });
    return "shape" in made ? [made] : made;
  } catch (cause) {
    throw nameError(`Cannot import ${op} of the ONNX model (node ${quoted(name)})`, cause);
  }
}
