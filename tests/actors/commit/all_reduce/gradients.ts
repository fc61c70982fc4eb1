/** Gradients whose sum depends on the order, and the sum in copy order, by the plainest loop. */

import type { GradientArray } from "../../../../actors/commit/all_reduce/mod.ts";
import fc from "../../../fast_check.ts";

export type DType = "f32" | "f16";

function arrayOf(dtype: DType, values: readonly number[]): GradientArray {
  return dtype === "f32" ? new Float32Array(values) : new Float16Array(values);
}

/**
 * Gradients of all copies: both signs, magnitudes over seven powers of two, some negative zeros.
 *
 * In every other element two copies also hold a large number and its opposite. What is added
 * between them is rounded to the large one's precision, which shows even after f16 has dropped
 * most bits of an f32 sum.
 */
export function copiesOf(
  { size, length, dtype, seed }: { size: number; length: number; dtype: DType; seed: number },
): GradientArray[] {
  let state = Math.imul(seed + 1, 0x9e3779b1);
  const draw = () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5 | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
  const value = () => draw() < 0.03 ? -0 : (2 * draw() - 1) * 2 ** Math.floor(draw() * 7 - 6);
  const copies = Array.from({ length: size }, () => Array.from({ length }, value));
  for (let i = 0; size > 1 && i < length; i += 2) {
    const one = Math.floor(draw() * size),
      other = (one + 1 + Math.floor(draw() * (size - 1))) % size;
    const large = 2 ** 12 * (1 + draw());
    copies[one]![i] = large;
    copies[other]![i] = -large;
  }
  return copies.map((values) => arrayOf(dtype, values));
}

/** Copy 0, plus copy 1, and so on: each addition rounded to f32, f16 rounded once at the end. */
export function leftToRight(copies: readonly GradientArray[], dtype: DType): GradientArray {
  const [first, ...rest] = copies.map((copy) => [...copy]);
  const sums = first!.map((value, i) =>
    rest.reduce((sum, copy) => Math.fround(sum + copy[i]!), value)
  );
  return arrayOf(dtype, sums);
}

/** The bytes of an array: what has the same bytes has the same bits. */
export function bytesOf(values: GradientArray): Uint8Array {
  return new Uint8Array(values.buffer);
}

/** Copies, their chunks, and an endless stream of choices of what happens next. */
export const cases = fc.record({
  size: fc.integer({ min: 1, max: 8 }),
  length: fc.nat({ max: 100 }),
  cuts: fc.array(fc.nat({ max: 100 }), { maxLength: 4 }),
  dtype: fc.constantFrom<DType>("f32", "f16"),
  seed: fc.nat(),
  choices: fc.infiniteStream(fc.nat()),
}).map(({ size, length, cuts, dtype, seed, choices }) => {
  const edges = [0, ...cuts.map((cut) => Math.min(cut, length)).sort((a, b) => a - b), length];
  return {
    dtype,
    copies: copiesOf({ size, length, dtype, seed }),
    chunks: edges.slice(1).map((end, i) => ({ offset: edges[i]!, length: end - edges[i]! })),
    pick: (count: number) => (choices.next().value as number) % count,
  };
});
