/**
 * Typed arrays over bytes, by dtype.
 *
 * @module
 */

import { type DType, DTYPE_BYTES, type HostArray } from "../device.ts";

type HostArrayConstructor = new (
  buffer: ArrayBufferLike,
  byteOffset: number,
  length: number,
) => HostArray;

const ARRAYS: Readonly<Record<DType, HostArrayConstructor>> = {
  f32: Float32Array,
  f16: Float16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  bool: Uint8Array,
};

/** The elements that `bytes` hold, as the typed array of `dtype`, without a copy. */
export function asHostArray(dtype: DType, bytes: Uint8Array): HostArray {
  const length = bytes.byteLength / DTYPE_BYTES[dtype];
  return new ARRAYS[dtype](bytes.buffer, bytes.byteOffset, length);
}

/** Whether `data` is the typed array in which hosts hold `dtype`. */
export function holds(dtype: DType, data: HostArray): boolean {
  return data instanceof ARRAYS[dtype];
}
