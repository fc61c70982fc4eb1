/**
 * Digests of gradients, weights and messages, by which copies of a stage are compared.
 *
 * A digest takes 32-bit words into four lanes, each of which is one-to-one in every word: a change
 * within one word always changes it.
 *
 * @module
 */

import type { StageValues } from "../../kernels/mod.ts";
import { keyed } from "../../kernels/internal.ts";

/** The first digest of a sequence of arrays. */
export const NO_DIGEST = 17;

const FACTOR = 0x01000193;

/**
 * Returns the digest of an array, after those before it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(digestOf(Float32Array.of(1, 2)), digestOf(Float32Array.of(1, 2)));
 * assert.notEqual(digestOf(Float32Array.of(1, 2)), digestOf(Float32Array.of(1, -2)));
 * ```
 */
export function digestOf(
  { buffer, byteOffset, byteLength }: ArrayBufferView,
  before = NO_DIGEST,
): number {
  const isWhole = byteOffset % 4 === 0 && byteLength % 4 === 0;
  const words = isWhole
    ? new Int32Array(buffer, byteOffset, byteLength / 4)
    : Int32Array.from(new Uint8Array(buffer, byteOffset, byteLength));
  let a = before | 0, b = a ^ byteLength, c = 1, d = 2, i = 0;
  for (const end = words.length - 3; i < end; i += 4) {
    a = Math.imul(a, FACTOR) ^ words[i]!;
    b = Math.imul(b, FACTOR) ^ words[i + 1]!;
    c = Math.imul(c, FACTOR) ^ words[i + 2]!;
    d = Math.imul(d, FACTOR) ^ words[i + 3]!;
  }
  for (; i < words.length; i++) a = Math.imul(a, FACTOR) ^ words[i]!;
  return [b, c, d].reduce((sum, lane) => Math.imul(sum, FACTOR) ^ lane, a);
}

/** Returns the digest of values that cross the border of a stage. */
export const digestOfValues = (values: StageValues): number =>
  Object.values(keyed(values)).reduce((sum, array) => digestOf(array, sum), NO_DIGEST);

/** The digest of a copy of a stage. */
export interface CopyDigest {
  readonly stage: number;
  /** Its place in the copy order of the stage. */
  readonly rank: number;
  readonly digest: number;
}

/** Returns the digests of stages whose copies differ, stage by stage. */
export function unequalCopies(digests: readonly CopyDigest[]): CopyDigest[] {
  return Map.groupBy(digests, ({ stage }) => stage).values().toArray()
    .filter((copies) => copies.some(({ digest }) => digest !== copies[0]!.digest)).flat();
}
