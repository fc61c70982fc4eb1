/** AdamW in one pass over memory, with the operations of `fused_ops.ts` in their order. */

import { bytesOf, load, NUMBER, store, VECTOR, wholeOf } from "./vectors";

/**
 * Steps `count` weights. Outputs may overwrite the inputs of the same names.
 *
 * @param scale address of the factor of the gradients; decay, rate and epsilon are addresses too.
 */
export function adamw(
  count: i32,
  w: usize,
  d: usize,
  m: usize,
  v: usize,
  scale: usize,
  decay: usize,
  rate: usize,
  epsilon: usize,
  nextW: usize,
  nextM: usize,
  nextV: usize,
  beta1: f32,
  rest1: f32,
  beta2: f32,
  rest2: f32,
): void {
  const s = v128.load_splat<f32>(scale), c = v128.load_splat<f32>(decay);
  const r = v128.load_splat<f32>(rate), e = v128.load_splat<f32>(epsilon);
  const b1 = f32x4.splat(beta1), r1 = f32x4.splat(rest1);
  const b2 = f32x4.splat(beta2), r2 = f32x4.splat(rest2);
  const bytes = bytesOf(count), whole = wholeOf(bytes);
  let at: usize = 0;
  for (; at < whole; at += VECTOR) {
    step(w + at, d + at, m + at, v + at, s, c, r, e, nextW + at, nextM + at, nextV + at, b1, r1, b2, r2, true);
  }
  for (; at < bytes; at += NUMBER) {
    step(w + at, d + at, m + at, v + at, s, c, r, e, nextW + at, nextM + at, nextV + at, b1, r1, b2, r2, false);
  }
}

// @ts-ignore: decorator
@inline
function step(
  w: usize,
  d: usize,
  m: usize,
  v: usize,
  scale: v128,
  decay: v128,
  rate: v128,
  epsilon: v128,
  nextW: usize,
  nextM: usize,
  nextV: usize,
  beta1: v128,
  rest1: v128,
  beta2: v128,
  rest2: v128,
  isWhole: bool,
): void {
  const g = f32x4.mul(load(d, isWhole), scale);
  const first = f32x4.add(f32x4.mul(load(m, isWhole), beta1), f32x4.mul(g, rest1));
  const second = f32x4.add(f32x4.mul(load(v, isWhole), beta2), f32x4.mul(f32x4.mul(g, g), rest2));
  const change = f32x4.div(f32x4.mul(first, rate), f32x4.add(f32x4.sqrt(second), epsilon));
  const weight = f32x4.sub(f32x4.mul(load(w, isWhole), decay), change);
  store(nextM, first, isWhole);
  store(nextV, second, isWhole);
  store(nextW, weight, isWhole);
}
