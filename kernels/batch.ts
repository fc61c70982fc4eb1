/**
 * Micro-batches: arrays by name, the number of their targets, their lengths, and cuts into parts or slices.
 *
 * @module
 */

import type { HostArray } from "./devices/device.ts";
import { assertInput, refusal } from "./errors.ts";

/** The named arrays of one micro-batch, one for each field that the layers read. */
export type Batch = { readonly [field: string]: HostArray };

/**
 * Returns the number of targets in a micro-batch that are not −1: those have a loss.
 *
 * @param field name of the field with the targets.
 * @throws {TypeError} when the micro-batch has no such field.
 * @throws {RangeError} when a target is below −1: devices would read outside the logits.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { countTargets } from "@troupe/troupe/kernels";
 *
 * assert.equal(countTargets({ targets: Int32Array.of(7, 0, -1, -1) }, "targets"), 2);
 * ```
 */
export function countTargets(batch: Batch, field: string): number {
  const targets = batch[field];
  if (!targets) {
    const must = `the micro-batch must have the field "${field}"`;
    const received = `[${Object.keys(batch).join(", ")}]`;
    throw refusal("count predictions", must, received, TypeError);
  }
  let count = 0;
  for (let i = 0; i < targets.length; i++) {
    if (targets[i]! >= 0) count++;
    else if (Number(targets[i]) !== -1) {
      const must = `"${field}" must hold classes, or −1 where nothing is predicted`;
      throw refusal("count predictions", must, `${targets[i]} at position ${i}`);
    }
  }
  return count;
}

/**
 * Cuts a micro-batch into `parts` equal parts along each field's leading elements. The parts share
 * memory with the whole.
 *
 * @throws {RangeError} when the length of a field is not divisible by `parts`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const batch = { ids: Int32Array.of(1, 2, 3, 4), label: Float32Array.of(5, 6) };
 * assert.deepEqual(splitBatch(batch, 2), [
 *   { ids: Int32Array.of(1, 2), label: Float32Array.of(5) },
 *   { ids: Int32Array.of(3, 4), label: Float32Array.of(6) },
 * ]);
 * assert.throws(() => splitBatch(batch, 3), /"ids".*divisible by 3, received 4 elements/);
 * ```
 */
export function splitBatch(batch: Batch, parts: number): Batch[] {
  for (const [name, { length }] of Object.entries(batch)) {
    const must = `the field "${name}" must be divisible by ${parts}`;
    assertInput(length % parts === 0, "split the micro-batch", must, `${length} elements`);
  }
  return Array.from({ length: parts }, (_, i) =>
    Object.fromEntries(
      Object.entries(batch).map(([name, values]) => {
        const size = values.length / parts;
        return [name, values.subarray(i * size, (i + 1) * size)];
      }),
    ));
}

/** Slicing of the sequences of a micro-batch. */
export interface Slicing {
  /** Equal parts of each sample's tokens. */
  readonly slices: number;
  /** Samples of a micro-batch. */
  readonly samples: number;
}

/**
 * Returns one slice of an array whose elements are in the order of samples, then tokens: the same
 * part of each sample, one after the other.
 *
 * @throws {RangeError} when the length of the array is not divisible.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
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
  const must = `its length must be divisible by ${samples} samples of ${slices} slices`;
  assertInput(Number.isInteger(size), "cut an array", must, `${array.length} elements`);
  const part = array.slice(0, samples * size) as A;
  for (let sample = 0; sample < samples; sample++) {
    const from = (sample * slices + index) * size;
    // The union of array types matches no overload of `set`, though each type does.
    part.set(array.subarray(from, from + size) as never, sample * size);
  }
  return part;
}

/** Joins the slices of {@linkcode sliceOf} again. */
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

/** Returns one slice of each field of a micro-batch. */
export const sliceBatch = (batch: Batch, slicing: Slicing, index: number): Batch =>
  Object.fromEntries(
    Object.entries(batch).map(([name, values]) => [name, sliceOf(values, slicing, index)]),
  );

/** Lengths that samples are padded to: the eighths of the longest. */
const LENGTHS = 8;

/**
 * Returns the lengths that samples are padded to, the longest first: eighths of it, rounded up.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(lengthsOf(32), [32, 28, 24, 20, 16, 12, 8, 4]);
 * assert.deepEqual(lengthsOf(3), [3, 2, 1]);
 * ```
 */
export const lengthsOf = (longest: number): number[] => [
  ...new Set(
    Array.from({ length: LENGTHS }, (_, i) => Math.ceil(longest * (LENGTHS - i) / LENGTHS)),
  ),
];
