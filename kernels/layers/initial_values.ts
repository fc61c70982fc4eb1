/**
 * The values with which parameters begin.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import { substream } from "../random.ts";
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
  const generator = substream(seed, name);
  // In (−1, 1) and never 0, where the logarithm would be infinite.
  const uniform = () => (generator.next() + 0.5) / 2 ** 31;
  for (let i = 0; i < values.length;) { // Marsaglia and Bray's polar method (1964): two for each point.
    const x = uniform(), y = uniform(), square = x * x + y * y;
    if (square >= 1) continue;
    const radius = initializer.deviation * Math.sqrt(-2 * Math.log(square) / square);
    values[i++] = radius * x;
    values[i++] = radius * y; // Beyond the end of an odd number it is dropped.
  }
  return values;
}
