/**
 * The tanh approximation of GELU, and its gradient.
 *
 * x·(1 + tanh u)/2 with u = √(2/π)·(x + 0.044715x³) is x·h, where h = 1/(1 + e⁻²ᵘ).
 */

import { exponential } from "./exponential";
import { bytesOf, load, NUMBER, store, VECTOR, wholeOf } from "./vectors";

/** 2u = x·(SLOPE + CUBIC·x²). */
const SLOPE: f32 = 1.5957691216057308;
const CUBIC: f32 = 0.07135481627159975;

// @ts-ignore: decorator
@inline
function twiceU(x: v128, square: v128): v128 {
  return f32x4.mul(x, f32x4.add(f32x4.mul(square, f32x4.splat(CUBIC)), f32x4.splat(SLOPE)));
}

/** The numerator of h over 1 + e, with e = e^−|2u|: 1 where 2u is positive, otherwise e²ᵘ. */
// @ts-ignore: decorator
@inline
function numerator(u: v128, e: v128): v128 {
  return v128.bitselect(f32x4.splat(1), e, f32x4.ge(u, f32x4.splat(0)));
}

// @ts-ignore: decorator
@inline
function geluOf(x: usize, y: usize, isWhole: bool): void {
  const given = load(x, isWhole), u = twiceU(given, f32x4.mul(given, given));
  const e = exponential(v128.or(u, f32x4.splat(-0.0)));
  const h = f32x4.div(numerator(u, e), f32x4.add(e, f32x4.splat(1)));
  store(y, f32x4.mul(given, h), isWhole);
}

/** y = GELU(x). */
export function gelu(count: i32, x: usize, y: usize): void {
  const bytes = bytesOf(count), whole = wholeOf(bytes);
  let at: usize = 0;
  for (; at < whole; at += VECTOR) geluOf(x + at, y + at, true);
  for (; at < bytes; at += NUMBER) geluOf(x + at, y + at, false);
}

/** y' = h + x·h·(1 − h)·2u', where h·(1 − h) = e/(1 + e)². */
// @ts-ignore: decorator
@inline
function geluGradOf(dy: usize, x: usize, dx: usize, isWhole: bool): void {
  const given = load(x, isWhole), square = f32x4.mul(given, given), u = twiceU(given, square);
  const e = exponential(v128.or(u, f32x4.splat(-0.0)));
  const inverse = f32x4.div(f32x4.splat(1), f32x4.add(e, f32x4.splat(1)));
  const h = f32x4.mul(numerator(u, e), inverse);
  const slope = f32x4.add(f32x4.mul(square, f32x4.splat(3 * CUBIC)), f32x4.splat(SLOPE));
  const both = f32x4.mul(f32x4.mul(e, inverse), inverse);
  const gradient = f32x4.add(h, f32x4.mul(f32x4.mul(given, slope), both));
  store(dx, f32x4.mul(load(dy, isWhole), gradient), isWhole);
}

/** dx = dy·GELU'(x). */
export function geluGrad(count: i32, dy: usize, x: usize, dx: usize): void {
  const bytes = bytesOf(count), whole = wholeOf(bytes);
  let at: usize = 0;
  for (; at < whole; at += VECTOR) geluGradOf(dy + at, x + at, dx + at, true);
  for (; at < bytes; at += NUMBER) geluGradOf(dy + at, x + at, dx + at, false);
}
