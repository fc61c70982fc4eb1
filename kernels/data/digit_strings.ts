/**
 * Strings of digits to be sorted or reversed: small tasks for models from sequence to sequence.
 *
 * @module
 */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { type RandomGenerator, substream } from "../random.ts";
import { type BatchPlan, batchRows, seekable, type SeekableBatches } from "./rows.ts";

/** What is to be done with a string. */
export type StringTask = "sort" | "reverse";

/** One micro-batch of B strings and what they are to become; each array owns its whole buffer. */
export type StringBatch = {
  /** [B·seq]: the digits of a string as 2 to 11, then 1, then 0 to the end. */
  readonly ids: Int32Array<ArrayBuffer>;
  /** [B·seq]: its digits in another order, then 1, then −1 to the end. */
  readonly targets: Int32Array<ArrayBuffer>;
};

/** What is drawn. */
export interface StringOptions {
  /** What is to be done with a string. */
  readonly task: StringTask;
  /** Tokens of a sample: strings have from 1 digit to one less. */
  readonly seq: number;
  /** Of all strings. */
  readonly seed: number;
  /** Whether they are those that are never trained on. */
  readonly isHeldOut?: boolean;
}

/** The number that ends a string; 0 pads it. */
const END = 1;

/** The number of the digit 0. */
const ZERO = 2;

/** Number of token ids: one that pads, one that ends a string, and ten digits. */
export const STRING_VOCABULARY: number = ZERO + 10;

/**
 * Micro-batches of strings without end, each drawn for its row by the seed. One in ten strings is held
 * out, by its digits and their places: no other is drawn where `isHeldOut`, and none of them elsewhere.
 *
 * @throws {RangeError} when a sample is shorter than two tokens, or the plan not of whole numbers.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { stringBatches } from "@troupe/troupe/kernels";
 *
 * const plan = { microBatch: 1, microBatches: 1 };
 * const [batch] = stringBatches({ task: "sort", seq: 8, seed: 1 }, plan);
 * const { ids, targets } = batch!, end = ids.indexOf(1);
 * assert.deepEqual(targets.subarray(0, end), ids.slice(0, end).sort());
 * assert.equal(targets[end], 1);
 * ```
 */
export function stringBatches(
  options: StringOptions,
  plan: BatchPlan,
): SeekableBatches<StringBatch> {
  const { seq } = options;
  if (!Number.isSafeInteger(seq) || seq < 2) {
    throw new RangeError(
      `Cannot draw strings: seq must be a whole number from 2, for a digit and an end, received ${seq}`,
    );
  }
  const rows = batchRows(1, { ...plan, order: (row) => row });
  return seekable((skipped) => generateBatches(rows.from(skipped), options));
}

function* generateBatches(selections: Iterable<readonly number[]>, options: StringOptions) {
  const { task, seq } = options;
  for (const rows of selections) {
    const ids = new Int32Array(rows.length * seq);
    const targets = new Int32Array(rows.length * seq).fill(-1);
    rows.forEach((row, j) => {
      const digits = drawString(row, options);
      const wanted = task === "sort" ? digits.toSorted((a, b) => a - b) : digits.toReversed();
      const tokens = (some: readonly number[]) => [...some.map((digit) => ZERO + digit), END];
      ids.set(tokens(digits), j * seq);
      targets.set(tokens(wanted), j * seq);
    });
    yield { ids, targets };
  }
}

function drawString(row: number, options: StringOptions): number[] {
  const { task, seq, seed, isHeldOut = false } = options;
  const random = substream(seed, `${task} ${seq} ${isHeldOut} ${row}`);
  const drawn = (): number[] => digitsOf(random, uniformInt(random, 1, seq - 1));
  let digits = drawn();
  while (belongsToHeldOut(digits) !== isHeldOut) digits = drawn();
  return digits;
}

const digitsOf = (random: RandomGenerator, length: number): number[] =>
  Array.from({ length }, () => uniformInt(random, 0, 9));

/** The digits, each times its place from 1 on, add up to a multiple of ten. */
const belongsToHeldOut = (digits: readonly number[]): boolean =>
  digits.reduce((sum, digit, i) => sum + (i + 1) * digit, 0) % 10 === 0;
