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
  // In (0, 1): a draw of zero would make the logarithm infinite.
  const uniform = () => ((generator.next() >>> 0) + 0.5) / 2 ** 32;
  for (let i = 0; i < values.length; i++) { // Box and Muller (1958)
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    values[i] = initializer.deviation * radius * Math.cos(2 * Math.PI * uniform());
  }
  return values;
}
