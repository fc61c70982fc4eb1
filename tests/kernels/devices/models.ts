/** Small models for the tests of devices. */

import { Graph } from "../../../kernels/ops/graph.ts";
import type { NodeGraph, TensorSpec, Value } from "../../../kernels/graph/value.ts";
import { encodeModel } from "../../../kernels/onnx/encode.ts";
import {
  type Device,
  type DType,
  DTYPE_BYTES,
  type HostArray,
  type Tensor,
} from "../../../kernels/devices/device.ts";
import { readSignature } from "../../../kernels/onnx/signature.ts";
import { asHostArray } from "../../../kernels/devices/tensor_memory.ts";

/** The model that computes named outputs from every input of `graph`; some values are in FP16. */
export function modelOf(
  graph: NodeGraph,
  outputs: Readonly<Record<string, Value>>,
  stored: Iterable<Value> = [],
  hasBf16Products = false,
): Uint8Array {
  const inputs = graph.inputs.map((value) => ({ name: value.name, value }));
  const ports = Object.entries(outputs).map(([name, value]) => ({ name, value }));
  return encodeModel(graph, inputs, ports, new Set(stored), hasBf16Products);
}

/** The model y = x · x. */
export function square(shape: readonly number[]): Uint8Array {
  const g = new Graph();
  const x = g.input("x", shape);
  return modelOf(g, { y: g.mul(x, x) });
}

/** A host array of `dtype` that holds `numbers`. */
export function hostArray(dtype: DType, numbers: readonly number[]): HostArray {
  const array = asHostArray(dtype, new Uint8Array(numbers.length * DTYPE_BYTES[dtype]));
  numbers.forEach((number, i) => array[i] = dtype === "i64" ? BigInt(number) : number);
  return array;
}

/** A tensor on `device` that holds `numbers`. */
export function tensorOf(
  device: Device,
  shape: readonly number[],
  numbers: readonly number[],
  dtype: DType = "f32",
): Tensor {
  const tensor = device.alloc(dtype, shape);
  device.write(tensor, hostArray(dtype, numbers));
  return tensor;
}

/** The elements of a tensor as numbers. */
export async function numbersOf(device: Device, tensor: Tensor): Promise<number[]> {
  return Array.from(await device.read(tensor), Number);
}

/** An open device or runtime that is closed where its block ends. */
export const closing = <T extends { close(): void }>(opened: T): T & Disposable =>
  Object.assign(opened, { [Symbol.dispose]: () => opened.close() });

/** Opens a device, uses it and closes it. */
export async function withDevice<T>(
  opening: Promise<Device> | Device,
  use: (device: Device) => Promise<T> | T,
): Promise<T> {
  const device = await opening;
  try {
    return await use(device);
  } finally {
    device.close();
  }
}

/** Computes the outputs of a model once, by name, from numbers for each of its inputs; frees all. */
export async function runModel(
  device: Device,
  model: Uint8Array,
  numbersFor: (input: TensorSpec, place: number) => readonly number[],
): Promise<Map<string, number[]>> {
  const { inputs, outputs } = readSignature(model);
  using kernel = closing(await device.compile(model));
  const given = inputs.map((input, i): [string, Tensor] => [
    input.name,
    tensorOf(device, input.shape, numbersFor(input, i), input.dtype),
  ]);
  const found = outputs.map(({ name, dtype, shape }): [string, Tensor] => [
    name,
    device.alloc(dtype, shape),
  ]);
  await kernel.bind(Object.fromEntries(given), Object.fromEntries(found))();
  const results = new Map<string, number[]>();
  for (const [name, tensor] of found) results.set(name, await numbersOf(device, tensor));
  for (const [, tensor] of [...given, ...found]) device.free(tensor);
  return results;
}

/** Numbers in [-1, 1) that depend only on the seed (a mixed Weyl sequence). */
export function pseudoRandom(seed: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => {
    let bits = Math.imul(seed + i + 1, 0x9e3779b9);
    bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
    bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
    return (bits ^ (bits >>> 16)) / 2 ** 31;
  });
}
