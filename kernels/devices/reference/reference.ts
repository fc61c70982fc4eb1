/**
 * The judge of the other devices: ONNX in plain TypeScript, slow and easy to check.
 *
 * Each operation computes in f64 and rounds once to the dtype of its result. Outputs are stored
 * after all operations, so that one that shares memory with an input never changes what a later
 * operation reads: a model that depends on the order differs from the other devices here.
 *
 * @module
 */

import type { Device } from "../device.ts";
import { sameShape } from "../../graph/shapes.ts";
import { lowerModel } from "../../onnx/fused_ops.ts";
import type { Binding } from "../engine/engine_device.ts";
import { hostDevice } from "../engine/host_device.ts";
import { fromBytes, type NdArray, toBytes } from "./array.ts";
import { readModel, type ReferenceModel, type Step } from "./model.ts";

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

function run(model: ReferenceModel, inputs: Bindings, outputs: Bindings): void {
  const arrays = new Map(model.constants);
  for (const input of inputs) {
    arrays.set(input.name, fromBytes(input.dtype, input.shape, bytesOf(input)));
  }
  for (const step of model.steps) walk(step, arrays);
  for (const output of outputs) {
    const array = arrays.get(output.name);
    if (!array || array.dtype !== output.dtype || !sameShape(array.shape, output.shape)) {
      throw new Error(
        `Cannot run the model: output "${output.name}" must be ${output.dtype} [${output.shape}], received ${array?.dtype} [${array?.shape}]`,
      );
    }
  }
  // Copies first: an output may be a view of an input that another output overwrites.
  const results = outputs.map(({ name }) => arrays.get(name)!)
    .map((array) => ({ ...array, values: array.values.slice() }));
  outputs.forEach((output, i) => toBytes(results[i]!, bytesOf(output)));
}

function bytesOf({ block, byteOffset, byteLength }: Binding<Uint8Array>): Uint8Array {
  return block.subarray(byteOffset, byteOffset + byteLength);
}

function walk(step: Step, arrays: Map<string, NdArray>): void {
  const inputs = step.inputs.map((name) => {
    const array = arrays.get(name);
    if (name && !array) {
      throw new Error(`Cannot run ${step.name}: input "${name}" must be computed`);
    }
    return array;
  });
  // Optional inputs that were left out are undefined, and operations ask before using one.
  const results = [step.operation(inputs as NdArray[], step.attributes, step.outputs.length)]
    .flat();
  step.outputs.forEach((name, i) => {
    if (name) arrays.set(name, results[i]!);
  });
}
