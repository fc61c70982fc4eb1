/**
 * Arrays of a micro-batch whose samples are sequences, cut into slices of their tokens and put
 * together again.
 *
 * @module
 */

import type { HostArray } from "../devices/device.ts";
import type { Batch } from "./batch.ts";

/** How the sequences of a micro-batch are cut. */
export interface Slicing {
  /** Equal parts of each sample's tokens. */
  readonly slices: number;
  /** Samples of a micro-batch. */
  readonly samples: number;
}

/**
 * What one slice has of an array whose numbers are in the order of samples, and of tokens within: the
 * same part of each sample, one after the other.
 *
 * @throws {RangeError} when the array cannot be divided so.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { joinSlices, sliceOf } from "@troupe/troupe/kernels";
 *
 * const ids = Int32Array.of(0, 1, 2, 3, 10, 11, 12, 13), slicing = { slices: 2, samples: 2 };
 * assert.deepEqual(sliceOf(ids, slicing, 1), Int32Array.of(2, 3, 12, 13));
 * const all = [sliceOf(ids, slicing, 0), sliceOf(ids, slicing, 1)];
 * assert.deepEqual(joinSlices(all, slicing), ids);
 * ```
 */
export function sliceOf<A extends HostArray>(
  array: A,
  { slices, samples }: Slicing,
  index: number,
): A {
  const size = array.length / (slices * samples);
  if (!Number.isInteger(size)) {
    throw new RangeError(
      `Cannot cut an array: its length must be divisible by ${samples} samples of ${slices} slices, received ${array.length} elements`,
    );
  }
  const part = array.slice(0, samples * size) as A;
  for (let sample = 0; sample < samples; sample++) {
    const from = (sample * slices + index) * size;
    // One array of them all is none of its overloads, though each of them takes its like.
    part.set(array.subarray(from, from + size) as never, sample * size);
  }
  return part;
}

/** The parts of {@linkcode sliceOf} as the array that they were. */
export function joinSlices<A extends HostArray>(
  parts: readonly A[],
  { slices, samples }: Slicing,
): A {
  const [first] = parts as [A], size = first.length / samples;
  const whole = new (first.constructor as new (length: number) => A)(first.length * slices);
  for (const [index, part] of parts.entries()) {
    for (let sample = 0; sample < samples; sample++) {
      const own = part.subarray(sample * size, (sample + 1) * size);
      whole.set(own as never, (sample * slices + index) * size);
    }
  }
  return whole;
}

/** What one slice has of each field of a micro-batch. */
export const sliceBatch = (batch: Batch, slicing: Slicing, index: number): Batch =>
  Object.fromEntries(
    Object.entries(batch).map(([name, values]) => [name, sliceOf(values, slicing, index)]),
  );
