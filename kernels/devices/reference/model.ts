/**
 * Reads an ONNX model into what the reference device walks: constants, and nodes in order.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import type { DType } from "../device.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import { type Attributes, fromBytes, type NdArray, ndArray, type Operation } from "./array.ts";
import { ELEMENTWISE } from "./elementwise.ts";
import { MOVEMENT } from "./movement.ts";
import { PRODUCTS } from "./products.ts";
import { REDUCTIONS } from "./reductions.ts";
import { WINDOWS } from "./windows.ts";
import {
  type AttributeProto,
  AttributeProto_AttributeType,
  ModelProtoSchema,
  type NodeProto,
  type TensorProto,
} from "../../onnx/onnx_pb.ts";

/** The operations that are known, by name; Microsoft's carry their domain. */
export const OPERATIONS: Readonly<Record<string, Operation>> = {
  ...ELEMENTWISE,
  ...MOVEMENT,
  ...PRODUCTS,
  ...REDUCTIONS,
  ...WINDOWS,
};

/** One operation on named arrays; an empty name is an optional input or output left out. */
export interface Step {
  readonly name: string;
  readonly operation: Operation;
  readonly attributes: Attributes;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

/** A model that can be walked. */
export interface ReferenceModel {
  readonly constants: ReadonlyMap<string, NdArray>;
  readonly steps: readonly Step[];
}

/**
 * Decodes a model.
 *
 * @throws {Error} when the bytes are no ONNX model or use an operation that is not known.
 */
export function readModel(bytes: Uint8Array): ReferenceModel {
  const { graph } = fromBinary(ModelProtoSchema, bytes);
  if (!graph) throw new Error("Cannot compile the model: it must hold a graph, received none");
  return {
    constants: new Map(
      graph.initializer.map((tensor) => [tensor.name ?? "", readConstant(tensor)]),
    ),
    steps: graph.node.map(readStep),
  };
}

function readStep(node: NodeProto): Step {
  const name = node.domain ? `${node.domain}.${node.opType}` : node.opType ?? "";
  const operation = OPERATIONS[name];
  if (!operation) {
    throw new Error(
      `Cannot compile the model: its operations must be known to the reference device, received "${name}"`,
    );
  }
  return {
    name: node.name || name,
    operation,
    attributes: readAttributes(node.attribute),
    inputs: node.input,
    outputs: node.output,
  };
}

function readAttributes(list: readonly AttributeProto[]): Attributes {
  const byName = new Map(list.map((attribute) => [attribute.name, attribute]));
  const { FLOAT } = AttributeProto_AttributeType;
  return {
    number(name, otherwise) {
      const attribute = byName.get(name);
      if (!attribute) return otherwise;
      return Number(attribute.type === FLOAT ? attribute.f : attribute.i);
    },
    string(name, otherwise) {
      const attribute = byName.get(name);
      return attribute ? new TextDecoder().decode(attribute.s) : otherwise;
    },
    numbers: (name) => byName.get(name)?.ints.map(Number),
  };
}

function readConstant(tensor: TensorProto): NdArray {
  const dtype = (Object.keys(ONNX_DTYPE) as DType[]).find((dtype) =>
    ONNX_DTYPE[dtype] === tensor.dataType
  );
  if (!dtype) {
    throw new Error(
      `Cannot compile the model: constant "${tensor.name}" must be of a known dtype, received ONNX type ${tensor.dataType}`,
    );
  }
  const shape = tensor.dims.map(Number);
  if (tensor.rawData?.length) return fromBytes(dtype, shape, new Uint8Array(tensor.rawData));
  const fields = {
    f32: "floatData",
    i64: "int64Data",
    i32: "int32Data",
    bool: "int32Data",
  } as const;
  if (dtype === "f16") {
    throw new Error(
      `Cannot compile the model: f16 constant "${tensor.name}" must be given as raw data`,
    );
  }
  return ndArray(dtype, shape, [...tensor[fields[dtype]]].map(Number));
}
