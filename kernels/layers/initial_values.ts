/**
 * The values with which parameters begin.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import { loadKernels, type SimdKernels } from "../devices/simd/load_kernels.ts";
import { type RandomGenerator, substream } from "../random.ts";
import type { ParameterSpec } from "./layer.ts";

/**
 * The first values of a parameter.
 *
 * @param name the parameter's full name, which keys its draws.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { initialValues } from "@troupe/troupe/kernels";
 *
 * const normal = { name: "w", shape: [4, 4], initializer: { kind: "normal", deviation: 0.02 } } as const;
 * assert.deepEqual(initialValues(normal, "h.0.w", 1), initialValues(normal, "h.0.w", 1));
 * assert.notDeepEqual(initialValues(normal, "h.0.w", 1), initialValues(normal, "h.1.w", 1));
 * ```
 */
export function initialValues(spec: ParameterSpec, name: string, seed: number): Float32Array {
  const values = new Float32Array(elementCount(spec.shape));
  const { initializer } = spec;
  if (initializer.kind === "constant") return values.fill(initializer.value);
  drawNormals(values, initializer.deviation, substream(seed, name));
  return values;
}

/** Numbers that are drawn at once; an even number, as they are drawn in pairs. */
const CHUNK = 16_384;
/** Where they lie in the memory of the kernel, behind the state of the generator. */
const STATE = 0, VALUES = 16, PAGE_BYTES = 65_536;

let drawing: { readonly memory: WebAssembly.Memory; readonly kernels: SimdKernels } | undefined;

function openDrawing() {
  const initial = Math.ceil((VALUES + 4 * CHUNK) / PAGE_BYTES);
  const memory = new WebAssembly.Memory({ initial, maximum: PAGE_BYTES, shared: true });
  return { memory, kernels: loadKernels(memory) };
}

/** Fills an array with normal numbers. Their bits depend on no engine's logarithm. */
function drawNormals(values: Float32Array, deviation: number, generator: RandomGenerator): void {
  const { memory, kernels } = drawing ??= openDrawing();
  const [high0, low0, high1, low1] = generator.getState() as [number, number, number, number];
  new Int32Array(memory.buffer, STATE, 4).set([low0, high0, low1, high1]);
  for (let at = 0; at < values.length; at += CHUNK) {
    const count = Math.min(CHUNK, values.length - at);
    kernels.normals(STATE, VALUES, count, deviation);
    values.set(new Float32Array(memory.buffer, VALUES, count), at);
  }
}
