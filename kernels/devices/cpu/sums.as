/** Sums and fills in one pass over memory. */

import { bytesOf, load, NUMBER, sumOf, VECTOR, wholeOf } from "./vectors";

// @ts-ignore: decorator
@inline
function square(x: usize, isWhole: bool): v128 {
  const value = load(x, isWhole);
  return f32x4.mul(value, value);
}

/** sum = Σ x², added in an order that depends only on `count`: in sixteen parts, then these. */
export function sumOfSquares(count: i32, x: usize, sum: usize): void {
  const bytes = bytesOf(count), whole = wholeOf(bytes), blocks = bytes & ~63;
  let a = f32x4.splat(0), b = a, c = a, d = a;
  let at: usize = 0;
  for (; at < blocks; at += 4 * VECTOR) {
    a = f32x4.add(a, square(x + at, true));
    b = f32x4.add(b, square(x + at + VECTOR, true));
    c = f32x4.add(c, square(x + at + 2 * VECTOR, true));
    d = f32x4.add(d, square(x + at + 3 * VECTOR, true));
  }
  for (; at < whole; at += VECTOR) a = f32x4.add(a, square(x + at, true));
  for (; at < bytes; at += NUMBER) b = f32x4.add(b, square(x + at, false));
  f32.store(sum, sumOf(f32x4.add(f32x4.add(a, b), f32x4.add(c, d))));
}

/** Sets bytes to zero; JavaScript does so one by one in shared memory. */
export function zero(at: usize, byteLength: usize): void {
  memory.fill(at, 0, byteLength);
}
