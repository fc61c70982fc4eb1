/**
 * Numbers in the types that weights are stored in: F32, and F16 and BF16 of half the bytes.
 *
 * @module
 */

import { SAFETENSORS_DTYPE_BYTES, type SafetensorsDType } from "./format.ts";

/** Types in which weights are stored. */
export type FloatDType = "F32" | "F16" | "BF16";

/** Whether numbers of a type can be read as F32, exactly. */
export const isFloatDType = (dtype: SafetensorsDType): dtype is FloatDType =>
  dtype === "F32" || dtype === "F16" || dtype === "BF16";

/**
 * Numbers as F32: those of F16 and BF16 are among them, so none is rounded.
 *
 * @param bytes little-endian, from an offset that divides by the bytes of a number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { decodeFloats } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(decodeFloats("BF16", Uint8Array.of(0xc0, 0x3f)), Float32Array.of(1.5));
 * assert.deepEqual(decodeFloats("F16", Uint8Array.of(0x00, 0x3e)), Float32Array.of(1.5));
 * ```
 */
export function decodeFloats(dtype: FloatDType, bytes: Uint8Array): Float32Array {
  const { buffer, byteOffset } = bytes;
  const count = bytes.byteLength / SAFETENSORS_DTYPE_BYTES[dtype];
  if (dtype === "F32") return new Float32Array(buffer, byteOffset, count);
  if (dtype === "F16") return Float32Array.from(new Float16Array(buffer, byteOffset, count));
  const halves = new Uint16Array(buffer, byteOffset, count), values = new Float32Array(count);
  const words = new Uint32Array(values.buffer);
  for (let i = 0; i < count; i++) words[i] = halves[i]! << 16;
  return values;
}

/**
 * Numbers of F32 in another type: each is the nearest, of two that are as near the even one. Those
 * beyond the largest become infinite.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { decodeFloats, encodeFloats } from "@troupe/troupe/kernels";
 *
 * const bytes = encodeFloats("BF16", Float32Array.of(1.5, 3.1415927));
 * assert.deepEqual(decodeFloats("BF16", bytes), Float32Array.of(1.5, 3.140625));
 * ```
 */
export function encodeFloats(dtype: FloatDType, values: Float32Array): Uint8Array {
  const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
    new Uint8Array(buffer, byteOffset, byteLength);
  if (dtype === "F32") return bytesOf(values);
  if (dtype === "F16") return bytesOf(Float16Array.from(values));
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!, isOdd = word >>> 16 & 1;
    // What is no number must not be rounded to an infinite one.
    halves[i] = Number.isNaN(values[i]) ? 0x7fc0 : (word + 0x7fff + isOdd) >>> 16;
  }
  return bytesOf(halves);
}
