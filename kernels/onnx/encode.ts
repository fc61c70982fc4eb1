/**
 * Encodes the part of a graph that computes some values from others as an ONNX model.
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
import type { OnnxInput } from "./read_file.ts";

type NodeInit = MessageInitShape<typeof NodeProtoSchema>;
type AttributeInit = MessageInitShape<typeof AttributeProtoSchema>;
type ValueInfoInit = MessageInitShape<typeof ValueInfoProtoSchema>;

/** Opset of every model: the first with Gelu; reductions take their axes as inputs. */
export const OPSET = 20n;
/** Version of the format that introduced this opset. */
export const IR_VERSION = 9n;

/** A named input or output of a model. */
export interface Port {
  /** Its name in the model. */
  readonly name: string;
  /** Its value in the graph. */
  readonly value: Value;
}

/**
 * Returns the smallest model that computes `outputs` from `inputs`, as bytes. Unused inputs are left
 * out.
 *
 * @param stored f32 values that are stored in FP16: inputs and outputs among them have the type
 * f16, and values computed within the model are rounded immediately, so that all nodes read the rounded
 * numbers. The nodes compute in f32.
 * @param hasBf16Products true if the factors of each Gemm are rounded to BF16.
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
  hasBf16Products = false,
): Uint8Array {
  const given = inputs.map((port) => port.value);
  const nodes = sliceNodes(graph, given, outputs.map((port) => port.value));
  const read = new Set(nodes.flatMap((node) => node.inputs));
  const wanted = new Set([...read, ...outputs.map((port) => port.value)]);
  const names = namesOf(inputs, outputs, stored);
  const round = hasBf16Products ? factorRounding(names) : () => [];
  const constants = [...wanted].filter((value) => value.data);
  const storing = (value: Value) =>
    read.has(value) ? [names.store(value), names.load(value)] : [names.store(value)];
  const border = ({ name, value }: Port) =>
    encodeValueInfo({ name, dtype: stored.has(value) ? "f16" : value.dtype, shape: value.shape });
  const model = create(ModelProtoSchema, {
    irVersion: IR_VERSION,
    opsetImport: [
      { domain: "", version: OPSET },
      { domain: MICROSOFT, version: 1n },
      ...hasBf16Products || nodes.some(({ domain }) => domain === TROUPE)
        ? [{ domain: TROUPE, version: 1n }]
        : [],
    ],
    graph: {
      name: "troupe",
      node: [
        ...given.filter((value) => stored.has(value) && read.has(value)).map(names.load),
        ...nodes.flatMap((node) => [
          ...round(node),
          encodeNode(node, names, wanted, hasBf16Products),
          ...node.outputs.filter((value) => stored.has(value) && wanted.has(value)).flatMap(
            storing,
          ),
        ]),
        ...names.copies,
      ],
      input: inputs.filter((port) => wanted.has(port.value)).map(border),
      output: outputs.map(border),
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

/** Encodes a graph whose inputs keep their names. */
export const encodeGraph = (
  graph: NodeGraph & { readonly inputs: readonly Value[] },
  outputs: Readonly<Record<string, Value>>,
): Uint8Array =>
  encodeModel(
    graph,
    graph.inputs.map((value) => ({ name: value.name, value })),
    Object.entries(outputs).map(([name, value]) => ({ name, value })),
  );

/** Returns the names of values in a model, and the nodes that only change a name or a dtype. */
function namesOf(inputs: readonly Port[], outputs: readonly Port[], stored: ReadonlySet<Value>) {
  const borders = new Map(inputs.map(({ name, value }) => [value, name]));
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
    /** Returns the name that nodes read. */
    read,
    /** Returns the name of the output of its node, before it is rounded. */
    written,
    /** Returns the node that rounds a value to its stored type. */
    store: (value: Value) => node("Cast", written(value), border(value), "f16"),
    /** Returns the node that widens a stored value. */
    load: (value: Value) => node("Cast", border(value), read(value), "f32"),
    /** Copies of values that are also inputs, or several outputs, under separate names. */
    copies,
  };
}

type Names = ReturnType<typeof namesOf>;

/** Returns whether a product rounds an input. */
const isFactor = ({ op }: Node, input: number) => op === "Gemm" && input < 2;

const roundedName = (name: string) => `bf16.${name}`;

/** Returns a function that rounds those factors of a product that no earlier product reads. */
function factorRounding({ read }: Names): (node: Node) => NodeInit[] {
  const known = new Set<string>();
  return (node) =>
    node.inputs.flatMap((value, i): NodeInit[] => {
      const name = read(value);
      if (!isFactor(node, i) || known.has(name)) return [];
      known.add(name);
      return [{ opType: "RoundBf16", domain: TROUPE, input: [name], output: [roundedName(name)] }];
    });
}

function encodeNode(
  node: Node,
  names: Names,
  wanted: ReadonlySet<Value>,
  hasBf16Products: boolean,
): NodeInit {
  // Unused optional outputs are left out; the outputs of Split are not optional.
  const output = node.outputs.map((value, i) =>
    i === 0 || wanted.has(value) || node.op === "Split" ? names.written(value) : ""
  );
  while (output.at(-1) === "") output.pop();
  return {
    opType: node.op,
    domain: node.domain,
    name: `${node.op}_${node.id}`,
    input: node.inputs.map((value, i) => {
      const name = names.read(value);
      return hasBf16Products && isFactor(node, i) ? roundedName(name) : name;
    }),
    output,
    attribute: Object.entries(node.attributes).map(([name, value]) => encodeAttribute(name, value)),
  };
}

/** Encodes an attribute of a node. */
export function encodeAttribute(name: string, value: Attribute): AttributeInit {
  const { FLOAT, INT, INTS, STRING } = AttributeProto_AttributeType;
  if (typeof value === "number") return { name, type: INT, i: BigInt(value) };
  if (typeof value === "string") return { name, type: STRING, s: new TextEncoder().encode(value) };
  if ("float" in value) return { name, type: FLOAT, f: value.float };
  return { name, type: INTS, ints: value.map(BigInt) };
}

/** Encodes the type of an input or output. An open size has a name. */
export function encodeValueInfo({ name, dtype, shape }: OnnxInput): ValueInfoInit {
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
