/**
 * Arrays of tensors on the host, and sizes of memory.
 *
 * @module
 */

import { resultOr } from "../errors.ts";
import { type DType, DTYPE_BYTES, HOST_ARRAYS, type HostArray } from "./device.ts";

/** Returns `bytes` as the typed array of `dtype`, without a copy. */
export function asHostArray(dtype: DType, bytes: Uint8Array): HostArray {
  const length = bytes.byteLength / DTYPE_BYTES[dtype];
  const Kind = HOST_ARRAYS[dtype] as new (...given: [ArrayBufferLike, number, number]) => HostArray;
  return new Kind(bytes.buffer, bytes.byteOffset, length);
}

/** Joins numbers in an array of a kind. */
export function joinArrays<A extends Float32Array | Uint8Array>(
  Kind: new (length: number) => A,
  parts: readonly ArrayLike<number>[],
): A {
  const all = new Kind(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/**
 * Throws if a size exceeds the memory of this machine, including swap, where it may be asked for.
 *
 * @param what start of the message: "Cannot train".
 * @throws {RangeError} with both sizes.
 */
export function assertMachineHolds(what: string, bytes: number): void {
  const info = resultOr(() => Deno.systemMemoryInfo(), undefined);
  const held = info ? info.total + info.swapTotal : Infinity;
  if (bytes <= held) return;
  const must = `it must fit into the ${gibibytes(held)} of this machine`;
  throw new RangeError(`${what}: ${must}, received ${gibibytes(bytes)}`);
}

const gibibytes = (bytes: number) => `${(bytes / 2 ** 30).toPrecision(3)} GiB`;

/**
 * Formats bytes in MiB.
 *
 * @param round rounds hundredths: use `Math.floor` for a limit, so that larger sizes look larger.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(mebibytes(1.5 * 2 ** 20), "1.50 MiB");
 * assert.equal(mebibytes(2 ** 30 - 16, Math.floor), "1023.99 MiB");
 * ```
 */
export function mebibytes(bytes: number, round: (x: number) => number = Math.round): string {
  return `${(round(bytes / 2 ** 20 * 100) / 100).toFixed(2)} MiB`;
}
