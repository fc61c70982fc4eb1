/**
 * The reference for the other devices: ONNX in plain TypeScript, slow and easy to check.
 *
 * Each operation computes in f64 and rounds once to the dtype of its result. Outputs are stored after all
 * operations, so an output in the memory of an input never changes the input of a later operation: a
 * model that depends on the order of writes has other results on the other devices.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { refusal } from "../errors.ts";
import { sameShape } from "../graph/shapes.ts";
import { dtypeNumbered, type ValueType } from "../graph/value.ts";
import { lowerModel } from "../onnx/lower.ts";
import { ModelProtoSchema, type NodeProto, type TensorProto } from "../onnx/onnx_pb.ts";
import { ELEMENT_TYPES } from "../onnx/read_file.ts";
import { attributesOf } from "../onnx/signature.ts";
import { fromBytes, type NdArray, ndArray, toBytes } from "../ops/array.ts";
import { opOf } from "../ops/table.ts";
import type { Device } from "./device.ts";
import { type Binding, hostDevice } from "./engine.ts";

/**
 * Decodes a model.
 *
 * @throws {Error} when the bytes are no ONNX model or use an operation that is not known.
 */
function readModel(bytes: Uint8Array) {
  const { graph } = fromBinary(ModelProtoSchema, bytes);
  if (!graph) throw new Error("Cannot compile the model: it must hold a graph, received none");
  const constants = graph.initializer.map((tensor) =>
    [tensor.name ?? "", readConstant(tensor)] as const
  );
  return { constants: new Map(constants), steps: graph.node.map(readStep) };
}

/** Returns one operation on named arrays; an empty name is an optional input or output left out. */
function readStep(node: NodeProto) {
  const name = node.domain ? `${node.domain}.${node.opType}` : node.opType ?? "";
  const { shape, reference: operation } = opOf(node.opType, node.domain) ?? {};
  if (!shape || !operation) {
    const must = "its operations must be known to the reference device";
    throw refusal("compile the model", must, `"${name}"`, Error);
  }
  return {
    name: node.name || name,
    shape,
    operation,
    attributes: attributesOf(node),
    inputs: node.input,
    outputs: node.output,
  };
}

type Step = ReturnType<typeof readStep>;

function readConstant(tensor: TensorProto): NdArray {
  const dtype = dtypeNumbered(tensor.dataType);
  if (!dtype) {
    const must = `constant "${tensor.name}" must be of a known dtype`;
    throw refusal("compile the model", must, `ONNX type ${tensor.dataType}`, Error);
  }
  const shape = tensor.dims.map(Number);
  if (tensor.rawData?.length) return fromBytes(dtype, shape, new Uint8Array(tensor.rawData));
  const type = ELEMENT_TYPES[tensor.dataType!];
  if (!type) {
    const what = `f16 constant "${tensor.name}"`;
    throw new Error(`Cannot compile the model: ${what} must be given as raw data`);
  }
  return ndArray({ dtype, shape }, Array.from(tensor[type.field], Number));
}

/**
 * Opens the reference device.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeModel, Graph, openReference } from "@troupe/troupe/kernels";
 *
 * const g = new Graph();
 * const x = g.input("x", [2]);
 * const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.mul(x, x) }]);
 * const device = await openReference();
 * const kernel = await device.compile(model);
 * const tensor = device.alloc("f32", [2]);
 * device.write(tensor, Float32Array.of(3, 4));
 * await kernel.bind({ x: tensor }, { y: tensor })(); // in place
 * assert.deepEqual(await device.read(tensor), Float32Array.of(9, 16));
 * device.close();
 * ```
 */
// deno-lint-ignore require-await -- like the other devices, which load a library
export async function openReference(): Promise<Device> {
  return hostDevice<Uint8Array>({
    name: "reference",
    allocate: (byteLength) => new Uint8Array(byteLength),
    bytes: (block) => block,
    release() {}, // The garbage collector's.
    // deno-lint-ignore require-await -- async, so that a refused model rejects and never throws
    async compile(bytes) {
      const model = readModel(lowerModel(bytes));
      return {
        bind: (inputs, outputs) => ({ run: () => run(model, inputs, outputs), release() {} }),
        release() {},
      };
    },
    close() {},
  });
}

type Bindings = readonly Binding<Uint8Array>[];

function run(model: ReturnType<typeof readModel>, inputs: Bindings, outputs: Bindings): void {
  const arrays = new Map(model.constants);
  for (const input of inputs) {
    arrays.set(input.name, fromBytes(input.dtype, input.shape, bytesOf(input)));
  }
  for (const step of model.steps) compute(step, arrays);
  for (const output of outputs) {
    const array = arrays.get(output.name), received = `${array?.dtype} [${array?.shape}]`;
    if (array?.dtype === output.dtype && sameShape(array.shape, output.shape)) continue;
    const must = `output "${output.name}" must be ${output.dtype} [${output.shape}]`;
    throw refusal("run the model", must, received, Error);
  }
  // Copies first: an output may be a view of an input that another output overwrites.
  const results = outputs.map(({ name }) => arrays.get(name)!)
    .map((array) => ({ ...array, values: array.values.slice() }));
  outputs.forEach((output, i) => toBytes(results[i]!, bytesOf(output)));
}

function bytesOf({ block, byteOffset, byteLength }: Binding<Uint8Array>): Uint8Array {
  return block.subarray(byteOffset, byteOffset + byteLength);
}

function compute(step: Step, arrays: Map<string, NdArray>): void {
  const inputs = step.inputs.map((name) => {
    const array = arrays.get(name);
    if (name && !array) {
      throw new Error(`Cannot run ${step.name}: input "${name}" must be computed`);
    }
    return array;
  });
  // Optional inputs that were left out are undefined, and operations ask before using one.
  const given = inputs as [NdArray, ...NdArray[]], { attributes, outputs: { length } } = step;
  const numbers = (place: number) => given[place] && [...given[place].values];
  const types = step.shape({ inputs: given, attributes, numbers, outputs: length });
  const known = "its settings must be known to the reference device";
  if (!types) throw new Error(`Cannot run ${step.name}: ${known}`);
  const results = [step.operation(given, step, types as [ValueType, ...ValueType[]])].flat();
  step.outputs.forEach((name, i) => {
    if (name) arrays.set(name, results[i]!);
  });
}
