/**
 * Rotary positions: RoFormer (Su et al. 2021).
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import type { LayerGraph } from "../layer.ts";

/** Options of {@linkcode rotary}. */
export interface RotaryOptions {
  /** Base of the angles; 10000 unless given. */
  readonly theta?: number;
  /** Where the tokens stand, int32 [tokens], of how many positions; one after the other unless given. */
  readonly positions?: { readonly at: Value; readonly count: number };
}

/**
 * Turns queries or keys by angles that grow with their position, so that a score depends on how far
 * two tokens are from each other: element i of the first half of x [..., tokens, width] and
 * element i of the second are turned together, at position p by p·theta^(−2i ÷ width). These pairs are
 * those of Hugging Face's models; the paper's are neighbours.
 *
 * Of a slice of a sequence the first token has its position in the whole.
 *
 * @throws {RangeError} when the width is odd.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { attention, LayerGraph, rotary } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 5, 32]);
 * const y = attention(g, x, x, x, { heads: 4, causal: true, position: (one) => rotary(g, one) });
 * assert.deepEqual(y.shape, [2, 5, 32]);
 * assert.throws(() => rotary(g, g.input("odd", [2, 4, 5, 7])), /must be even, received 7/);
 * ```
 */
export function rotary(
  g: LayerGraph,
  x: Value,
  { theta = 10_000, positions }: RotaryOptions = {},
): Value {
  const [tokens, width] = x.shape.slice(-2) as [number, number], half = width / 2;
  if (!Number.isInteger(half)) {
    throw new RangeError(`Cannot turn by positions: the width must be even, received ${width}`);
  }
  const first = positions ? 0 : g.slice.index * tokens, rows = positions?.count ?? tokens;
  const table = (turn: (angle: number) => number) => {
    const angles = Float32Array.from(
      { length: rows * half },
      (_, i) => turn((first + Math.floor(i / half)) * theta ** (-2 * (i % half) / width)),
    );
    const all = g.constant(angles, [rows, half]);
    return positions ? g.gather(all, positions.at) : all;
  };
  const cos = table(Math.cos), sin = table(Math.sin);
  const [a, b] = g.split(x, -1, 2) as [Value, Value];
  return g.concat([
    g.sub(g.mul(a, cos), g.mul(b, sin)),
    g.add(g.mul(b, cos), g.mul(a, sin)),
  ], -1);
}
