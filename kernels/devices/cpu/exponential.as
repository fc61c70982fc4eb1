/** Exponential and logarithm for the arguments of softmax and GELU. */

/** The largest x for which eˣ is 0. */
export const LOWEST: f32 = -88;

/**
 * eˣ for x ≤ 0.7: within two units in the last place down to −87.3, the ln of the smallest
 * normal number; at most 2e-38 below that, and 0 from {@linkcode LOWEST} on; NaN for NaN.
 *
 * With n the whole number nearest to x/ln 2 and r = x − n·ln 2, eˣ = 2ⁿ·(1 + r + r²·q(r)), where q has
 * the least relative error: 4e-9 before rounding.
 */
// @ts-ignore: decorator
@inline
export function exponential(x: v128): v128 {
  // Adding 1.5·2²³ rounds to a whole number, which is then in the lowest bits.
  const magic = f32x4.splat(12582912);
  const bounded = f32x4.pmax(x, f32x4.splat(LOWEST));
  const shifted = f32x4.add(f32x4.mul(bounded, f32x4.splat(1.44269504)), magic);
  const n = f32x4.sub(shifted, magic);
  // ln 2 in two parts, of which n times the first is exact.
  const near = f32x4.sub(bounded, f32x4.mul(n, f32x4.splat(0.693359375)));
  const r = f32x4.sub(near, f32x4.mul(n, f32x4.splat(-2.12194440e-4)));
  let q = f32x4.splat(0.001381454);
  q = f32x4.add(f32x4.mul(q, r), f32x4.splat(0.008368745));
  q = f32x4.add(f32x4.mul(q, r), f32x4.splat(0.04166839));
  q = f32x4.add(f32x4.mul(q, r), f32x4.splat(0.16666521));
  q = f32x4.add(f32x4.mul(q, r), f32x4.splat(0.49999994));
  const power = f32x4.add(f32x4.add(f32x4.mul(q, f32x4.mul(r, r)), r), f32x4.splat(1));
  // The exponent of 2ⁿ is n + 127, which is 0 where n is −127: a factor of 0.
  const scale = i32x4.add(i32x4.shl(shifted, 23), i32x4.splat(127 << 23));
  return f32x4.mul(power, scale);
}

/**
 * ln x of a normal number: x = m·2^k with m from √½ to √2, and ln m = 2·artanh((m − 1) ÷ (m + 1)), to
 * 5e-11 of it. The logarithm of an engine may differ from that of another.
 */
// @ts-ignore: decorator
@inline
export function logarithm(x: f64): f64 {
  const bits = reinterpret<i64>(x), exponent = (bits - 0x3fe6a09e667f3bcd) >> 52;
  const m = reinterpret<f64>(bits - (exponent << 52)), t = (m - 1) / (m + 1), q = t * t;
  const series = 1 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q / 11))));
  return <f64>exponent * 0.6931471805599453 + 2 * t * series;
}
