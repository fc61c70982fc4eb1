/**
 * Writes models: what a graph computes of some values from some others, as ONNX bytes.
 *
 * @module
 */

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import type { DType } from "../devices/device.ts";
import {
  type Attribute,
  MICROSOFT,
  type Node,
  type NodeGraph,
  ONNX_DTYPE,
  sliceNodes,
  TROUPE,
  type Value,
} from "../graph/value.ts";
import {
  AttributeProto_AttributeType,
  type AttributeProtoSchema,
  ModelProtoSchema,
  type NodeProtoSchema,
  type ValueInfoProtoSchema,
} from "./onnx_pb.ts";

type NodeInit = MessageInitShape<typeof NodeProtoSchema>;
/** What an attribute is written from. */
type AttributeInit = MessageInitShape<typeof AttributeProtoSchema>;
/** What the type of an input or output is written from. */
type ValueInfoInit = MessageInitShape<typeof ValueInfoProtoSchema>;

/** Opset of every model: the first with Gelu; reductions take their axes as inputs. */
export const OPSET = 20n;
/** The version of the format that came with it. */
export const IR_VERSION = 9n;

/** A named value that crosses the border of a model. */
export interface Port {
  /** The name of the model's input or output. */
  readonly name: string;
  /** What it stands for in the graph. */
  readonly value: Value;
}

/**
 * The smallest model that computes `outputs` from `inputs`, serialised. Inputs that nothing needs
 * are left out.
 *
 * @param stored f32 values that live in FP16: an input or output among them crosses the border of
 * the model as f16, and what is computed within is rounded as it is made, so that whoever reads it
 * reads what a store would have given. The nodes compute in f32.
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
  graph: NodeGraph,
  inputs: readonly Port[],
  outputs: readonly Port[],
  stored: ReadonlySet<Value> = new Set(),
): Uint8Array {
  const given = inputs.map((port) => port.value);
  const nodes = sliceNodes(graph, given, outputs.map((port) => port.value));
  const read = new Set(nodes.flatMap((node) => node.inputs));
  const wanted = new Set([...read, ...outputs.map((port) => port.value)]);
  const names = namesOf(inputs, outputs, stored);
  const constants = [...wanted].filter((value) => value.data);
  const model = create(ModelProtoSchema, {
    irVersion: IR_VERSION,
    opsetImport: [
      { domain: "", version: OPSET },
      { domain: MICROSOFT, version: 1n },
      ...nodes.some(({ domain }) => domain === TROUPE) ? [{ domain: TROUPE, version: 1n }] : [],
    ],
    graph: {
      name: "troupe",
      node: [
        ...given.filter((value) => stored.has(value) && read.has(value)).map(names.load),
        ...nodes.flatMap((node) => [
          encodeNode(node, names, wanted),
          ...node.outputs.filter((value) => stored.has(value) && wanted.has(value))
            .flatMap((
              value,
            ) => [names.store(value), ...read.has(value) ? [names.load(value)] : []]),
        ]),
        ...names.copies,
      ],
      input: inputs.filter(({ value }) => wanted.has(value)).map((port) =>
        encodeBorder(port, stored)
      ),
      output: outputs.map((port) => encodeBorder(port, stored)),
      initializer: constants.map((value) => ({
        name: value.name,
        dataType: ONNX_DTYPE[value.dtype],
        dims: value.shape.map(BigInt),
        rawData: new Uint8Array(value.data!.buffer, value.data!.byteOffset, value.data!.byteLength),
      })),
    },
  });
  return toBinary(ModelProtoSchema, model);
}

/** What values are called in a model, and the nodes that only give them another name or dtype. */
interface Names {
  /** As nodes read it. */
  readonly read: (value: Value) => string;
  /** As its node writes it: a stored value is rounded first. */
  readonly written: (value: Value) => string;
  /** Rounds what a node wrote to what is stored. */
  readonly store: (value: Value) => NodeInit;
  /** Widens what is stored to what nodes read. */
  readonly load: (value: Value) => NodeInit;
  /** A value that is also an input, or an output twice, gets a name of its own by a copy. */
  readonly copies: readonly NodeInit[];
}

function namesOf(
  inputs: readonly Port[],
  outputs: readonly Port[],
  stored: ReadonlySet<Value>,
): Names {
  const borders = new Map<Value, string>();
  for (const { name, value } of inputs) borders.set(value, name);
  const border = (value: Value) =>
    borders.get(value) ?? (stored.has(value) ? `f16.${value.name}` : value.name);
  const node = (opType: string, from: string, to: string, dtype?: DType): NodeInit => ({
    opType,
    input: [from],
    output: [to],
    attribute: dtype ? [encodeAttribute("to", ONNX_DTYPE[dtype])] : [],
  });
  const copies: NodeInit[] = [];
  for (const { name, value } of outputs) {
    if (value.data && stored.has(value)) copies.push(node("Cast", value.name, name, "f16"));
    else if (!value.node || borders.has(value)) copies.push(node("Identity", border(value), name));
    else borders.set(value, name);
  }
  const read = (value: Value) => stored.has(value) ? `f32.${value.name}` : border(value);
  const written = (value: Value) => stored.has(value) ? `whole.${value.name}` : border(value);
  return {
    read,
    written,
    store: (value) => node("Cast", written(value), border(value), "f16"),
    load: (value) => node("Cast", border(value), read(value), "f32"),
    copies,
  };
}

function encodeNode(node: Node, names: Names, wanted: ReadonlySet<Value>): NodeInit {
  // Optional outputs that nobody reads are left out; those of Split are not optional.
  const output = node.outputs.map((value, i) =>
    i === 0 || wanted.has(value) || node.op === "Split" ? names.written(value) : ""
  );
  while (output.at(-1) === "") output.pop();
  return {
    opType: node.op,
    domain: node.domain,
    name: `${node.op}_${node.id}`,
    input: node.inputs.map(names.read),
    output,
    attribute: Object.entries(node.attributes).map(([name, value]) => encodeAttribute(name, value)),
  };
}

/** Writes an attribute of a node. */
export function encodeAttribute(name: string, value: Attribute): AttributeInit {
  const { FLOAT, INT, INTS, STRING } = AttributeProto_AttributeType;
  if (typeof value === "number") return { name, type: INT, i: BigInt(value) };
  if (typeof value === "string") return { name, type: STRING, s: new TextEncoder().encode(value) };
  if ("float" in value) return { name, type: FLOAT, f: value.float };
  return { name, type: INTS, ints: value.map(BigInt) };
}

function encodeBorder({ name, value }: Port, stored: ReadonlySet<Value>): ValueInfoInit {
  return encodeValueInfo(name, stored.has(value) ? "f16" : value.dtype, value.shape);
}

/** Writes the type of an input or output. A size that only a run knows has a name. */
export function encodeValueInfo(
  name: string,
  dtype: DType,
  shape: readonly (number | string)[],
): ValueInfoInit {
  const dim = shape.map((size) => ({
    value: typeof size === "string"
      ? { case: "dimParam" as const, value: size }
      : { case: "dimValue" as const, value: BigInt(size) },
  }));
  const tensorType = {
    case: "tensorType" as const,
    value: { elemType: ONNX_DTYPE[dtype], shape: { dim } },
  };
  return { name, type: { value: tensorType } };
}
