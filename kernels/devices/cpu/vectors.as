/** Loads and stores of four numbers, or of single ones at the end of a row. */

/** Bytes of a vector. */
export const VECTOR: usize = 16;

/** Bytes of a number. */
export const NUMBER: usize = 4;

/** Bytes of some numbers. */
// @ts-ignore: decorator
@inline
export function bytesOf(count: i32): usize {
  return <usize>count << 2;
}

/** Returns the bytes of the whole vectors within `bytes`. */
// @ts-ignore: decorator
@inline
export function wholeOf(bytes: usize): usize {
  return bytes & ~15;
}

/** Reads four numbers, or one with three zeros. */
// @ts-ignore: decorator
@inline
export function load(at: usize, isWhole: bool): v128 {
  return isWhole ? v128.load(at) : v128.load_zero<u32>(at);
}

/** Writes four numbers, or the first of them. */
// @ts-ignore: decorator
@inline
export function store(at: usize, value: v128, isWhole: bool): void {
  if (isWhole) v128.store(at, value);
  else v128.store_lane<u32>(at, value, 0);
}

/** Keeps only the first of four numbers if one was read; the others become zero. */
// @ts-ignore: decorator
@inline
export function kept(value: v128, isWhole: bool): v128 {
  return isWhole ? value : v128.and(value, i32x4(-1, 0, 0, 0));
}

/** Returns the sum of four numbers. */
// @ts-ignore: decorator
@inline
export function sumOf(value: v128): f32 {
  const pairs = f32x4.add(value, i8x16.shuffle(value, value, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1);
}

/** Returns the largest of four numbers. */
// @ts-ignore: decorator
@inline
export function largestOf(value: v128): f32 {
  const pairs = f32x4.pmax(value, i8x16.shuffle(value, value, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  return max(f32x4.extract_lane(pairs, 0), f32x4.extract_lane(pairs, 1));
}
