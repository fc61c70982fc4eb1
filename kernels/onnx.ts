/**
 * Cuts models out of a graph: the nodes that compute some values from some others, as ONNX bytes.
 *
 * @module
 */

import onnxProto from "onnx-proto";
import {
  type Attribute,
  type Graph,
  MICROSOFT,
  type Node,
  ONNX_DTYPE,
  type Value,
} from "./graph.ts";

const { onnx } = onnxProto;

/** Opset of every model: the first with Gelu; reductions take their axes as inputs. */
const OPSET = 20;
const IR_VERSION = 9;

/** A named value that crosses the border of a model. */
export interface Port {
  /** The name of the model's input or output. */
  readonly name: string;
  /** What it stands for in the graph. */
  readonly value: Value;
}

/**
 * The nodes of `graph` that `outputs` need when `inputs` are given, in topological order.
 *
 * @throws {TypeError} when an output needs a graph input that `inputs` does not hold.
 */
export function sliceNodes(
  graph: Graph,
  inputs: readonly Value[],
  outputs: readonly Value[],
): Node[] {
  const given = new Set(inputs);
  const needed = new Set<Node>();
  const pending = [...outputs];
  while (pending.length > 0) {
    const value = pending.pop()!;
    if (given.has(value) || value.data || (value.node && needed.has(value.node))) continue;
    if (!value.node) {
      throw new TypeError(`Cannot cut a model: the input "${value.name}" must be among its inputs`);
    }
    needed.add(value.node);
    pending.push(...value.node.inputs);
  }
  return graph.nodes.filter((node) => needed.has(node));
}

/**
 * The smallest model that computes `outputs` from `inputs`, serialised. Inputs that nothing needs
 * are left out.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeModel, Graph, openReference } from "@troupe/troupe/kernels";
 *
 * const g = new Graph();
 * const a = g.input("a", [2]), b = g.input("b", [2]);
 * const model = encodeModel(g, [{ name: "a", value: a }, { name: "b", value: b }], [
 *   { name: "sum", value: g.add(a, b) },
 * ]);
 * const device = await openReference();
 * const kernel = await device.compile(model);
 * assert.deepEqual(kernel.inputs, ["a", "b"]);
 * assert.deepEqual(kernel.outputs, ["sum"]);
 * device.close();
 * ```
 */
export function encodeModel(
  graph: Graph,
  inputs: readonly Port[],
  outputs: readonly Port[],
): Uint8Array {
  const given = inputs.map((port) => port.value);
  const nodes = sliceNodes(graph, given, outputs.map((port) => port.value));
  const names = new Map<Value, string>();
  for (const port of inputs) names.set(port.value, port.name);
  const encoded = [];
  for (const { name, value } of outputs) {
    // A value that is also an input, or an output twice, gets a name of its own by a copy.
    if (!value.node || given.includes(value) || names.has(value)) {
      encoded.push(
        onnx.NodeProto.create({
          opType: "Identity",
          input: [names.get(value) ?? value.name],
          output: [name],
        }),
      );
    } else names.set(value, name);
  }
  const nameOf = (value: Value) => names.get(value) ?? value.name;
  const read = new Set(nodes.flatMap((node) => node.inputs));
  const wanted = new Set([...read, ...outputs.map((port) => port.value)]);
  const constants = [...read].filter((value) => value.data);
  return onnx.ModelProto.encode(onnx.ModelProto.create({
    irVersion: IR_VERSION,
    opsetImport: [{ domain: "", version: OPSET }, { domain: MICROSOFT, version: 1 }],
    graph: {
      name: "troupe",
      node: [...nodes.map((node) => encodeNode(node, nameOf, wanted)), ...encoded],
      input: inputs.filter(({ value }) => wanted.has(value)).map(encodeBorder),
      output: outputs.map(encodeBorder),
      initializer: constants.map((value) => ({
        name: value.name,
        dataType: ONNX_DTYPE[value.dtype],
        dims: [...value.shape],
        rawData: new Uint8Array(value.data!.buffer, value.data!.byteOffset, value.data!.byteLength),
      })),
    },
  })).finish();
}

function encodeNode(node: Node, nameOf: (value: Value) => string, wanted: Set<Value>) {
  // Optional outputs that nobody reads are left out; those of Split are not optional.
  const output = node.outputs.map((value, i) =>
    i === 0 || wanted.has(value) || node.op === "Split" ? nameOf(value) : ""
  );
  while (output.at(-1) === "") output.pop();
  return onnx.NodeProto.create({
    opType: node.op,
    domain: node.domain,
    name: `${node.op}_${node.id}`,
    input: node.inputs.map(nameOf),
    output,
    attribute: Object.entries(node.attributes).map(([name, value]) => encodeAttribute(name, value)),
  });
}

function encodeAttribute(name: string, value: Attribute) {
  if (typeof value === "number") return { name, type: 2, i: value };
  if (typeof value === "string") return { name, type: 3, s: new TextEncoder().encode(value) };
  if ("float" in value) return { name, type: 1, f: value.float };
  return { name, type: 7, ints: [...value] };
}

function encodeBorder({ name, value }: Port) {
  const dim = value.shape.map((dimValue) => ({ dimValue }));
  return { name, type: { tensorType: { elemType: ONNX_DTYPE[value.dtype], shape: { dim } } } };
}
