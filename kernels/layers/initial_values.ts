/**
 * The values with which parameters begin.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import { CHANCE_MAX, CHANCE_VALUES, chanceKernels } from "../devices/simd/chance_kernels.ts";
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
  openDraws(spec, name, seed)(values);
  return values;
}

/** Fills an array with values that follow those of the last call. */
export type Draws = (into: Float32Array) => void;

/**
 * The first values of a parameter, piece by piece from the first to the last.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { initialValues, openDraws } from "@troupe/troupe/kernels";
 *
 * const normal = { name: "w", shape: [5], initializer: { kind: "normal", deviation: 0.02 } } as const;
 * const draws = openDraws(normal, "h.0.w", 1), first = new Float32Array(3), rest = new Float32Array(2);
 * draws(first);
 * draws(rest);
 * assert.deepEqual([...first, ...rest], [...initialValues(normal, "h.0.w", 1)]);
 * ```
 */
export function openDraws({ initializer }: ParameterSpec, name: string, seed: number): Draws {
  if (initializer.kind === "constant") return (into) => void into.fill(initializer.value);
  const generator = substream(seed, name);
  return initializer.kind === "uniform"
    ? openUniforms(initializer, generator)
    : openNormals(initializer.deviation, generator);
}

/** Numbers between bounds, of 24 bits each, which is all that an f32 of such a range can hold. */
function openUniforms(
  { low, high }: { readonly low: number; readonly high: number },
  generator: RandomGenerator,
): Draws {
  return (into) => {
    for (let i = 0; i < into.length; i++) {
      into[i] = low + (high - low) * ((generator.next() >>> 8) / 2 ** 24);
    }
  };
}

/** Where the state of the generator lies in the memory of the kernel. */
const STATE = 0;

/** Normal numbers. Their bits depend on no engine's logarithm. */
function openNormals(deviation: number, generator: RandomGenerator): Draws {
  const [high0, low0, high1, low1] = generator.getState() as [number, number, number, number];
  const state = Int32Array.of(low0, high0, low1, high1);
  /** The second of a pair whose first was the last of a piece. */
  let left: number | undefined;
  return (into) => {
    const { memory, kernels } = chanceKernels();
    const used = new Int32Array(memory.buffer, STATE, 4);
    used.set(state);
    let at = 0;
    if (left !== undefined && into.length > 0) [into[at++], left] = [left, undefined];
    while (at < into.length) {
      const count = Math.min(CHANCE_MAX, into.length - at), even = count + count % 2;
      kernels.normals(STATE, CHANCE_VALUES, even, deviation);
      const drawn = new Float32Array(memory.buffer, CHANCE_VALUES, even);
      into.set(drawn.subarray(0, count), at);
      if (even > count) left = drawn[count];
      at += count;
    }
    state.set(used);
  };
}
