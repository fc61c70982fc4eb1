/**
 * An ONNX file as a graph of plain records, its nodes in the form of one opset.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import type { DType } from "../../devices/device.ts";
import type { Attribute } from "../../graph/value.ts";
import {
  type AttributeProto,
  AttributeProto_AttributeType,
  type GraphProto,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
  type ValueInfoProto,
} from "../../onnx/onnx_pb.ts";
import { checkNames } from "./names.ts";
import { type Constant, dtypeOf, type ExternalFiles, readTensor } from "./onnx_tensor.ts";
import type { OnnxNode } from "./onnx_node.ts";
import { upgradeNode } from "./upgrade.ts";
import { quoted, shown } from "./quoted.ts";

/** An input of a file; sizes that only a run knows have names. */
export interface OnnxInput {
  /** Its name. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes, or their names; one without a name is `input.axis`. */
  readonly shape: readonly (number | string)[];
}

/** What a file holds. */
export interface OnnxGraph {
  readonly nodes: readonly OnnxNode[];
  readonly inputs: readonly OnnxInput[];
  /** The names of its outputs. */
  readonly outputs: readonly string[];
  /** Its initializers, by name. */
  readonly initializers: ReadonlyMap<string, Constant>;
}

/** The opsets whose nodes are understood. */
export const OPSETS = { least: 9, most: 23 } as const;

/** More would take minutes to compile. Exports of the largest networks have some thousands. */
const NODES_MAX = 20_000;

/** The most values that all nodes name: a sum of n becomes n nodes. */
const OPERANDS_MAX = 4 * NODES_MAX;

/** ONNX's own operations have no domain, or this one. */
const ONNX_DOMAIN = "ai.onnx";

/**
 * Decodes a file.
 *
 * @throws {TypeError} when it is no ONNX model, is truncated, or holds what is not understood.
 * @throws {RangeError} when a tensor has other sizes than it has bytes.
 */
export function readOnnx(bytes: Uint8Array, external: ExternalFiles): OnnxGraph {
  const model = decodeModel(bytes), graph = model.graph!;
  const version = opsetOf(model);
  checkNames(graph);
  if (graph.sparseInitializer.length > 0) {
    const name = graph.sparseInitializer[0]!.values?.name ?? "";
    throw refusal("its initializers must be dense", `the sparse ${quoted(name)}`);
  }
  const initializers = new Map(graph.initializer.map((tensor) => {
    const name = tensor.name ?? "";
    return [name, readTensor(tensor, `the initializer ${quoted(name)}`, external)];
  }));
  return {
    nodes: graph.node.map((node) => upgradeNode(readNode(node, external), version)),
    inputs: graph.input.filter(({ name }) => !initializers.has(name ?? "")).map(readInput),
    outputs: graph.output.map(({ name }) => name ?? ""),
    initializers,
  };
}

const refusal = (must: string, received: string) =>
  new TypeError(`Cannot import the ONNX model: ${must}, received ${received}`);

/** The message that a file is. */
export function decodeModel(bytes: Uint8Array): ModelProto & { graph: GraphProto } {
  let model: ModelProto | undefined;
  try {
    model = fromBinary(ModelProtoSchema, bytes);
  } catch {
    // Its reasons are those of a format that the file may not have.
  }
  const { graph } = model ?? {};
  const nodes = graph?.node ?? [];
  const operands = nodes.reduce((sum, { input, output }) => sum + input.length + output.length, 0);
  if (nodes.length > NODES_MAX || operands > OPERANDS_MAX) {
    throw refusal(
      `it must have at most ${NODES_MAX} nodes with ${OPERANDS_MAX} inputs and outputs`,
      `${nodes.length} with ${operands}`,
    );
  }
  if (model && graph && graph.node.length > 0) return Object.assign(model, { graph });
  const what = model ? "no graph with nodes" : "what is no such message, or not all of it";
  throw refusal("the file must be one", `${bytes.length} bytes with ${what}`);
}

function opsetOf({ opsetImport }: ModelProto): number {
  const own = opsetImport.find(({ domain = "" }) => domain === "" || domain === ONNX_DOMAIN);
  const version = Number(own?.version ?? 0);
  if (version >= OPSETS.least && version <= OPSETS.most) return version;
  throw refusal(
    `its opset must be from ${OPSETS.least} to ${OPSETS.most}`,
    version === 0 ? "none, as of a file that is not all there" : `${version}`,
  );
}

function readInput({ name = "", type }: ValueInfoProto): OnnxInput {
  const what = `the input ${quoted(name)}`;
  const tensor = type?.value.case === "tensorType" ? type.value.value : undefined;
  const dtype = dtypeOf(tensor?.elemType), dims = tensor?.shape?.dim;
  if (!name || !dtype || !dims || ![1, 6, 7, 9].includes(tensor.elemType ?? 0)) {
    throw refusal(
      `${what} must be a tensor of f32, i32, i64 or bool whose number of axes is said`,
      tensor ? `ONNX type ${tensor.elemType ?? 0}` : "no such tensor",
    );
  }
  const shape = dims.map(({ value }, axis) => {
    const size = value.case === "dimValue" ? Number(value.value) : 0;
    const called = value.case === "dimParam" ? value.value : "";
    return size > 0 ? size : called || `${name}.${axis}`;
  });
  return { name, dtype, shape };
}

function readNode(node: NodeProto, external: ExternalFiles): OnnxNode {
  const { domain = "", opType = "", input, output } = node;
  const name = node.name || output[0] || opType;
  const settings = new Map<string, Attribute>();
  let value: Constant | undefined;
  for (const one of node.attribute) {
    const tensor = constantOf(one, name, external);
    if (tensor) value = tensor;
    else settings.set(one.name ?? "", attributeOf(one, opType, name));
  }
  const attributes = Object.fromEntries(settings);
  const op = domain === "" || domain === ONNX_DOMAIN ? opType : `${domain}.${opType}`;
  const read = { name, op, inputs: input, outputs: output, attributes, constants: new Map() };
  return value ? { ...read, value } : read;
}

/** The tensor that an attribute is: `value` of Constant and ConstantOfShape, in whichever form. */
function constantOf(
  { name, t, f, i, floats, ints }: AttributeProto,
  node: string,
  external: ExternalFiles,
): Constant | undefined {
  if (t) return readTensor(t, `a constant of the node ${quoted(node)}`, external);
  switch (name) {
    case "value_float":
      return { dtype: "f32", shape: [], data: Float32Array.of(f ?? 0) };
    case "value_int":
      return { dtype: "i64", shape: [], data: BigInt64Array.of(i ?? 0n) };
    case "value_floats":
      return { dtype: "f32", shape: [floats.length], data: Float32Array.from(floats) };
    case "value_ints":
      return { dtype: "i64", shape: [ints.length], data: BigInt64Array.from(ints) };
  }
}

function attributeOf(attribute: AttributeProto, op: string, node: string): Attribute {
  const { FLOAT, INT, INTS, STRING, FLOATS } = AttributeProto_AttributeType;
  switch (attribute.type) {
    case FLOAT:
      return { float: attribute.f ?? 0 };
    case INT:
      return Number(attribute.i ?? 0n);
    case INTS:
      return attribute.ints.map(Number);
    case STRING:
      return new TextDecoder().decode(attribute.s);
    case FLOATS:
      return attribute.floats;
  }
  throw new TypeError(
    `Cannot import the ONNX model: attributes must be numbers, lists, text or tensors, received another as ${
      quoted(attribute.name ?? "")
    } of ${shown(op)} (node ${quoted(node)})`,
  );
}
