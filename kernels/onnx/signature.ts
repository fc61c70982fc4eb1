/**
 * Reads ONNX models: names, dtypes and shapes of inputs and outputs, attributes and constants.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import type { Tensor } from "../devices/device.ts";
import { assertInput } from "../errors.ts";
import { sameShape } from "../graph/shapes.ts";
import {
  type Attribute,
  dtypeNumbered,
  ONNX_DTYPE,
  type TensorSpec,
  type ValueType,
} from "../graph/value.ts";
import {
  type AttributeProto,
  AttributeProto_AttributeType,
  type GraphProto,
  ModelProtoSchema,
  type NodeProto,
  type TensorProto,
  type ValueInfoProto,
} from "./onnx_pb.ts";

/**
 * Reads the inputs and outputs of a model given as protobuf bytes, in its order.
 *
 * @throws {TypeError} when an input or output has a dynamic shape or an unknown dtype.
 */
export const readSignature = (model: Uint8Array) =>
  signatureOf(fromBinary(ModelProtoSchema, model).graph);

/** Returns the signature of a graph; see {@linkcode readSignature}. */
export function signatureOf(graph: GraphProto | undefined) {
  const constants = new Set(graph?.initializer.map((constant) => constant.name));
  return {
    inputs: (graph?.input ?? []).filter(({ name }) => !constants.has(name)).map(readPort),
    outputs: (graph?.output ?? []).map(readPort),
  };
}

function readPort({ name, type }: ValueInfoProto): TensorSpec {
  const tensor = type?.value.case === "tensorType" ? type.value.value : undefined;
  const dtype = dtypeNumbered(tensor?.elemType), dims = tensor?.shape?.dim;
  if (!name || !dtype || !dims || dims.some(({ value }) => value.case === "dimParam")) {
    const must = `"${name}" must be a tensor of a known dtype and a static shape`;
    throw new TypeError(`Cannot compile the model: ${must}`);
  }
  return { name, dtype, shape: dims.map(({ value }) => Number(value.value ?? 0)) };
}

/**
 * Returns the tensors of `given` in the order of `ports`.
 *
 * @throws {TypeError} when a name is missing or unknown, or a dtype or shape differs.
 */
export function matchTensors(
  what: "input" | "output",
  ports: readonly TensorSpec[],
  given: Readonly<Record<string, Tensor>>,
): Tensor[] {
  const names = ports.map((port) => port.name);
  const other = Object.keys(given).find((name) => !names.includes(name));
  if (other !== undefined) {
    throw new TypeError(`Cannot bind ${what} "${other}": it must be one of [${names.join(", ")}]`);
  }
  return ports.map(({ name, dtype, shape }) => {
    const tensor = given[name];
    if (tensor === undefined) {
      const names = `[${Object.keys(given).join(", ")}]`;
      throw new TypeError(`Cannot bind: ${what} "${name}" must be given, received ${names}`);
    }
    const fits = tensor.dtype === dtype && sameShape(tensor.shape, shape);
    const received = `${tensor.dtype} [${tensor.shape}]`;
    const cannot = `bind ${what} "${name}"`;
    assertInput(fits, cannot, `it must be ${dtype} [${shape}]`, received, TypeError);
    return tensor;
  });
}

/** Decodes an attribute of a node; undefined if devices do not support its type. */
export function attributeOf(
  { type, f, i, ints, s, floats }: AttributeProto,
): Attribute | undefined {
  const { FLOAT, INT, INTS, STRING, FLOATS } = AttributeProto_AttributeType;
  switch (type) {
    case FLOAT:
      return { float: f ?? 0 };
    case INT:
      return Number(i ?? 0n);
    case INTS:
      return ints.map(Number);
    case STRING:
      return new TextDecoder().decode(s);
    case FLOATS:
      return floats;
  }
}

/** Returns the attributes of a node by name. */
export const attributesOf = (
  { attribute }: Pick<NodeProto, "attribute">,
): Record<string, Attribute> =>
  Object.fromEntries(attribute.flatMap((one) => {
    const value = attributeOf(one);
    return value === undefined ? [] : [[one.name ?? "", value]];
  }));

const attribute = (node: NodeProto, name: string) =>
  node.attribute.find((one) => one.name === name);

/** Returns an integer attribute of a node. */
export const intOf = (node: NodeProto, name: string, otherwise: number): number =>
  Number(attribute(node, name)?.i ?? otherwise);

/** Returns a float attribute of a node. */
export const floatOf = (node: NodeProto, name: string, otherwise: number): number =>
  attribute(node, name)?.f ?? otherwise;

/** Returns the sizes and attributes of a product α·op(a)·op(b) of m × k and k × n numbers. */
export function productOf(node: NodeProto, { shape: a }: ValueType, { shape: b }: ValueType) {
  const transA = intOf(node, "transA", 0), transB = intOf(node, "transB", 0);
  const m = a.at(transA - 2)!, k = a.at(-1 - transA)!, n = b.at(-1 - transB)!;
  return { m, n, k, transA, transB, alpha: floatOf(node, "alpha", 1) };
}

/** Returns a text attribute of a node. */
export function textOf(node: NodeProto, name: string): string | undefined {
  const found = attribute(node, name)?.s;
  return found && new TextDecoder().decode(found);
}

/** Returns the numbers of an int64 constant; undefined for other types. */
export function wholeNumbers(
  { dataType, rawData, int64Data }: TensorProto,
): readonly number[] | undefined {
  if (dataType !== ONNX_DTYPE.i64) return undefined;
  const numbers = int64Data.length
    ? int64Data
    : new BigInt64Array((rawData ?? new Uint8Array()).slice().buffer);
  return Array.from(numbers, Number);
}
