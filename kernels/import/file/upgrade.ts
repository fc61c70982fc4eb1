/**
 * Nodes of older opsets in the form of newer ones: settings that were attributes become inputs.
 *
 * @module
 */

import type { Attribute } from "../../graph/value.ts";
import type { OnnxNode } from "./onnx_node.ts";
import { type Constant, hostArray } from "./onnx_tensor.ts";

/** What changed with an opset, for nodes of those before. */
interface Change {
  readonly before: number;
  readonly upgrade: (node: OnnxNode) => OnnxNode;
}

/** Attributes that became inputs, each at its place: lists of whole numbers, or scalars. */
const toInputs = (...names: readonly string[]) => (node: OnnxNode): OnnxNode => {
  const attributes = { ...node.attributes }, constants = new Map(node.constants);
  for (const [i, name] of names.entries()) {
    const value = attributes[name];
    delete attributes[name];
    if (value !== undefined) constants.set(i + 1, constantFrom(value));
  }
  return { ...node, attributes, constants };
};

function constantFrom(value: Attribute): Constant {
  if (Array.isArray(value)) {
    return { dtype: "i64", shape: [value.length], data: hostArray("i64", value) };
  }
  const { float } = value as { float: number };
  return { dtype: "f32", shape: [], data: Float32Array.of(float) };
}

/** Softmax of all axes from one on, taken as one. */
const flattened = (node: OnnxNode): OnnxNode => ({
  ...node,
  attributes: { ...node.attributes, axis: node.attributes.axis ?? 1, flattened: 1 },
});

/** Sizes by factors only, each pixel that of the place below. */
const simpleResize = (node: OnnxNode): OnnxNode => ({
  ...node,
  op: "Resize",
  inputs: [node.inputs[0]!, "", node.inputs[1]!],
  attributes: {
    mode: node.attributes.mode ?? "nearest",
    coordinate_transformation_mode: "asymmetric",
    nearest_mode: "floor",
  },
});

const AXES_13 = ["Squeeze", "Unsqueeze", "ReduceSum"];
const AXES_18 = [
  ...["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"],
  ...["ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"],
];

const each = (ops: readonly string[], change: Change) =>
  Object.fromEntries(ops.map((op) => [op, change]));

const CHANGES: Readonly<Record<string, Change>> = {
  ...each(AXES_13, { before: 13, upgrade: toInputs("axes") }),
  ...each(AXES_18, { before: 18, upgrade: toInputs("axes") }),
  ...each(["Softmax", "LogSoftmax"], { before: 13, upgrade: flattened }),
  Split: { before: 13, upgrade: toInputs("split") },
  Slice: { before: 10, upgrade: toInputs("starts", "ends", "axes") },
  Clip: { before: 11, upgrade: toInputs("min", "max") },
  Dropout: { before: 12, upgrade: toInputs("ratio") },
  Pad: { before: 11, upgrade: toInputs("pads", "value") },
  Upsample: { before: Infinity, upgrade: simpleResize },
  Resize: { before: 11, upgrade: simpleResize },
  GroupNormalization: {
    before: 21,
    upgrade: (node) => ({ ...node, attributes: { ...node.attributes, scale_of_groups: 1 } }),
  },
};

/** A node as the newest opset writes it. */
export function upgradeNode(node: OnnxNode, version: number): OnnxNode {
  const change = Object.hasOwn(CHANGES, node.op) ? CHANGES[node.op] : undefined;
  return change && version < change.before ? change.upgrade(node) : node;
}
