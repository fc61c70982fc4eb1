/** Masks of dropouts, by Wellons' hash of 32 bits ("lowbias32"), whose rounds each take a word of a key. */

import { bytesOf, VECTOR } from "./vectors";

/**
 * Writes `kept`, the bits of a number, or 0 where the hash of a place is below `least` of 2³¹.
 *
 * @param count of numbers, a multiple of four.
 * @param from the place of the first.
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
