/**
 * Chance, keyed by (seed, label): the same whatever the order of draws or the stage.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { xoroshiro128plusFromState } from "pure-rand/generator/xoroshiro128plus";
import type { RandomGenerator as PureRandomGenerator } from "pure-rand/types/RandomGenerator";
import { elementCount } from "./graph/shapes.ts";
import type { ParameterSpec } from "./layers/layer.ts";

/** A generator of random 32-bit integers, as npm's `pure-rand` has them. */
export type RandomGenerator = PureRandomGenerator;

/** A generator of its own for each (seed, label): neighbouring seeds and labels share nothing. */
export function substream(seed: number, label: string): RandomGenerator {
  const digest = createHash("sha256").update(`${seed}/${label}`).digest();
  const word = (i: number) => digest.readInt32LE(4 * i);
  return xoroshiro128plusFromState([word(0), word(1), word(2), word(3)]);
}

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
  const generator = substream(seed, name);
  // In (0, 1): a draw of zero would make the logarithm infinite.
  const uniform = () => ((generator.next() >>> 0) + 0.5) / 2 ** 32;
  for (let i = 0; i < values.length; i++) { // Box and Muller (1958)
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    values[i] = initializer.deviation * radius * Math.cos(2 * Math.PI * uniform());
  }
  return values;
}
