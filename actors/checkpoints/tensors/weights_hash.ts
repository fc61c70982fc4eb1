/**
 * The hash of a model's weights.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { PIECE_ELEMENTS } from "./held_state.ts";
import { openPieces, type TensorSource } from "./tensor_source.ts";

/**
 * SHA-256 of all parameters' F32 bytes in the order of their names, in hexadecimal. Those that are
 * elsewhere are read piece by piece.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { hashWeights } from "@troupe/troupe/actors";
 *
 * const [a, b] = [Float32Array.of(1), Float32Array.of(2)];
 * assert.equal(hashWeights(new Map([["a", a], ["b", b]])), hashWeights(new Map([["b", b], ["a", a]])));
 * ```
 */
export function hashWeights(weights: ReadonlyMap<string, TensorSource>): string {
  const hash = createHash("sha256"), read = openPieces(PIECE_ELEMENTS);
  for (const name of [...weights.keys()].sort()) {
    read(weights.get(name)!, (values) => hash.update(bytesOf(values)));
  }
  return hash.digest("hex");
}

/** The bytes of an array. */
export function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
