/** Dropout masks by Wellons' 32-bit hash ("lowbias32"), with a word of the key in each round. */

import { bytesOf, VECTOR } from "./vectors";

/**
 * Writes `kept`, the bits of a number, or 0 where the hash of a place, below 2³¹, is below `least`.
 *
 * @param count of numbers, a multiple of four.
 * @param from place of the first number.
 */
export function dropoutMask(values: usize, count: i32, from: i32, word0: i32, word1: i32, least: i32, kept: i32): void {
  const end = values + bytesOf(count), key0 = i32x4.splat(word0), key1 = i32x4.splat(word1);
  const factor0 = i32x4.splat(0x7feb352d), factor1 = i32x4.splat(0x846ca68b);
  const bound = i32x4.splat(least), number = i32x4.splat(kept), four = i32x4.splat(4);
  let place = i32x4.add(i32x4.splat(from), i32x4(0, 1, 2, 3));
  for (let at = values; at < end; at += VECTOR) {
    let x = v128.xor(place, key0);
    x = i32x4.mul(v128.xor(x, i32x4.shr_u(x, 16)), factor0);
    x = i32x4.add(x, key1);
    x = i32x4.mul(v128.xor(x, i32x4.shr_u(x, 15)), factor1);
    x = i32x4.shr_u(v128.xor(x, i32x4.shr_u(x, 16)), 1);
    v128.store(at, v128.and(number, i32x4.ge_s(x, bound)));
    place = i32x4.add(place, four);
  }
}
