/** Four numbers at once, or the one that is left over at the end of a row. */

/** Reads four numbers, or one. */
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
