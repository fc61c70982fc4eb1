/** Normal random numbers: pairs by Marsaglia and Bray's polar method (1964). */

import { logarithm } from "./exponential";

/**
 * Draws `count` numbers of mean 0.
 *
 * @param state address of the state of the generator xoroshiro128+, two u64, which is updated.
 */
export function normals(state: usize, values: usize, count: i32, deviation: f64): void {
  let s0 = load<u64>(state), s1 = load<u64>(state, 8);
  const end = values + (<usize>count << 2);
  for (let at = values; at < end;) {
    const x = uniform(s0 + s1);
    s1 ^= s0;
    s0 = rotl(s0, 24) ^ s1 ^ (s1 << 16);
    s1 = rotl(s1, 37);
    const y = uniform(s0 + s1);
    s1 ^= s0;
    s0 = rotl(s0, 24) ^ s1 ^ (s1 << 16);
    s1 = rotl(s1, 37);
    const square = x * x + y * y;
    if (square >= 1) continue;
    const radius = deviation * sqrt<f64>(-2 * logarithm(square) / square);
    store<f32>(at, <f32>(radius * x));
    at += 4;
    if (at == end) break; // the second of the last pair is dropped if the number is odd
    store<f32>(at, <f32>(radius * y));
    at += 4;
  }
  store<u64>(state, s0);
  store<u64>(state, s1, 8);
}

/** Returns the low 32 bits as a number in (−1, 1) that is never 0. */
// @ts-ignore: decorator
@inline
function uniform(bits: u64): f64 {
  return (<f64><i32>bits + 0.5) / 2147483648;
}
