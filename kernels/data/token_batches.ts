/**
 * Micro-batches of a language model: rows of tokens, each predicting the next one.
 *
 * Row r takes tokens r·seq … r·seq + seq; its inputs are the first `seq` of them and its targets
 * the last `seq`. Neighbouring rows share one token, and every token but the first is predicted once.
 *
 * @module
 */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { nameError } from "../errors.ts";
import { substream } from "../random.ts";
import { checkTokens, readerOf, type TokenFile, type Tokens } from "./token_file.ts";

/** Maps the number of a row in the run (from 0, without end) to a row of the data. */
export type RowOrder = (row: number) => number;

/**
 * An order that reads each row once an epoch, every epoch in a permutation of its own.
 *
 * The permutation of an epoch is a function of `(seed, epoch)` alone, so a resumed run, another
 * worker, or a replay that asks for any row in any order gets the same answer.
 *
 * @param rows in the data.
 * @throws {RangeError} when `rows` is no whole number from 1 to 2^32 − 1, or `seed` no integer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { shuffledOrder } from "@troupe/troupe/kernels";
 *
 * const order = shuffledOrder(4, 7);
 * const epoch = [0, 1, 2, 3].map(order);
 * assert.deepEqual(epoch.toSorted(), [0, 1, 2, 3]);
 * assert.equal(shuffledOrder(4, 7)(2), epoch[2]);
 * ```
 */
export function shuffledOrder(rows: number, seed: number): RowOrder {
  if (!Number.isInteger(rows) || rows < 1 || rows >= 2 ** 32) {
    throw new RangeError(
      `Cannot shuffle rows: their number must be whole, from 1 to 2^32 - 1, received ${rows}`,
    );
  }
  if (!Number.isSafeInteger(seed)) {
    throw new RangeError(`Cannot shuffle rows: the seed must be an integer, received ${seed}`);
  }
  // A micro-batch may straddle two epochs, but asks for its rows in order: one epoch is enough.
  let cachedEpoch = -1;
  let permutation = new Uint32Array(0);
  return (row) => {
    const epoch = Math.floor(row / rows);
    if (epoch !== cachedEpoch) {
      permutation = permute(rows, seed, epoch);
      cachedEpoch = epoch;
    }
    return permutation[row % rows]!;
  };
}

/** Fisher–Yates over 0 … rows − 1. */
function permute(rows: number, seed: number, epoch: number): Uint32Array<ArrayBuffer> {
  const random = substream(seed, `epoch ${epoch}`);
  const permutation = Uint32Array.from({ length: rows }, (_, i) => i);
  for (let i = rows - 1; i > 0; i--) {
    const j = uniformInt(random, 0, i);
    const swapped = permutation[i]!;
    permutation[i] = permutation[j]!;
    permutation[j] = swapped;
  }
  return permutation;
}

/** How a run cuts its data into steps and micro-batches. */
export interface BatchPlan {
  /** B: rows of a micro-batch. */
  readonly microBatch: number;
  /** N: micro-batches of one data-parallel replica in a step. */
  readonly microBatches: number;
  /** W: data-parallel replicas (default 1). */
  readonly replicas?: number | undefined;
  /** First step to read for (default 1); a resumed run starts after its checkpoint. */
  readonly fromStep?: number | undefined;
  /** Steps to read for; by default as many as there are rows for, without end under `order`. */
  readonly steps?: number | undefined;
  /** Whether the last step may have fewer micro-batches than the others (default no). */
  readonly lastIsSmaller?: boolean | undefined;
  /** Where each row of the run comes from; by default the data is read in order, once. */
  readonly order?: RowOrder | undefined;
}

/** Micro-batches that can be begun anywhere, without those before being made. */
export interface SeekableBatches<T> extends Generator<T, void> {
  /** The same micro-batches without the first `microBatch` of them. */
  from(microBatch: number): Generator<T, void>;
}

/** Micro-batches that can be begun anywhere, given what begins them somewhere. */
export function seekable<T>(
  from: (microBatch: number) => Generator<T, void>,
): SeekableBatches<T> {
  return Object.assign(from(0), { from });
}

/**
 * Yields the rows of each micro-batch, in the order of the global ids, step after step.
 *
 * @param rows in the data.
 * @throws {RangeError} at once, when the plan is not made of whole numbers from 1, or when the
 * data has too few rows ({@linkcode rowsNeeded}).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { batchRows } from "@troupe/troupe/kernels";
 *
 * const plan = { microBatch: 2, microBatches: 2, steps: 1, fromStep: 2 };
 * assert.deepEqual([...batchRows(9, plan)], [[4, 5], [6, 7]]);
 * assert.deepEqual([...batchRows(9, plan).from(1)], [[6, 7]]);
 * assert.throws(() => batchRows(7, plan), /8 rows, received 7/);
 * ```
 */
export function batchRows(rows: number, plan: BatchPlan): SeekableBatches<number[]> {
  const needed = rowsNeeded(plan);
  if (rows < needed) {
    throw new RangeError(
      `Cannot make micro-batches: the data must have at least ${needed} rows, received ${rows}`,
    );
  }
  const { microBatch, fromStep = 1, steps = Infinity, order, lastIsSmaller } = plan;
  const stepRows = rowsOfStep(plan), unit = lastIsSmaller ? microBatch : stepRows;
  const there = order ? Infinity : Math.floor(rows / unit) * unit;
  const end = Math.min((fromStep - 1 + steps) * stepRows, there);
  const start = (fromStep - 1) * stepRows, rowOf = order ?? ((row: number) => row);
  return seekable((skipped) => generateRows(start + skipped * microBatch, end, microBatch, rowOf));
}

/**
 * The fewest rows that a plan can run on: all it reads when the data is read once, in order; one
 * when an order repeats them.
 *
 * @throws {RangeError} when a number of the plan is not a whole number from 1 (steps: from 0).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { rowsNeeded, shuffledOrder } from "@troupe/troupe/kernels";
 *
 * const plan = { microBatch: 2, microBatches: 4, steps: 10 };
 * assert.equal(rowsNeeded(plan), 80);
 * assert.equal(rowsNeeded({ ...plan, order: shuffledOrder(5, 0) }), 1);
 * ```
 */
export function rowsNeeded(plan: BatchPlan): number {
  const { microBatch, microBatches, replicas = 1, fromStep = 1, steps = 1, order } = plan;
  checkCounts({ microBatch, microBatches, replicas, fromStep });
  checkCounts({ steps }, 0);
  if (order) return 1;
  const missing = plan.lastIsSmaller && steps > 0 ? rowsOfStep(plan) - microBatch : 0;
  return rowsOfStep(plan) * (fromStep - 1 + steps) - missing;
}

function rowsOfStep({ microBatch, microBatches, replicas = 1 }: BatchPlan): number {
  return replicas * microBatches * microBatch;
}

function* generateRows(start: number, end: number, microBatch: number, order: RowOrder) {
  for (let first = start; first < end; first += microBatch) {
    yield Array.from({ length: microBatch }, (_, j) => order(first + j));
  }
}

function checkCounts(counts: Record<string, number>, least = 1): void {
  for (const [name, value] of Object.entries(counts)) {
    if (!Number.isSafeInteger(value) || value < least) {
      throw new RangeError(
        `Cannot make micro-batches: ${name} must be a whole number from ${least}, ` +
          `received ${value}`,
      );
    }
  }
}

/** One micro-batch; both arrays hold B rows of `seq` tokens and own their whole buffers. */
export type TokenBatch = {
  readonly ids: Int32Array<ArrayBuffer>;
  readonly targets: Int32Array<ArrayBuffer>;
};

/** Where token micro-batches come from. */
export interface TokenBatchOptions extends BatchPlan {
  /** The whole text as ids, in memory or in a file. */
  readonly tokens: Tokens | TokenFile;
  /** Tokens of a row. */
  readonly seq: number;
  /** Rows of the embedding: every token must be below it. */
  readonly vocabularySize: number;
}

/**
 * Cuts tokens into micro-batches, in the order of the global ids, step after step.
 *
 * @throws {RangeError} at once, when a token is outside the vocabulary or there are too few tokens;
 * tokens of a file are looked at again as they are read.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { tokenBatches } from "@troupe/troupe/kernels";
 *
 * const tokens = Uint8Array.of(10, 11, 12, 13, 14);
 * const plan = { microBatch: 2, microBatches: 1, steps: 1 };
 * const [batch] = tokenBatches({ tokens, seq: 2, vocabularySize: 256, ...plan });
 * assert.deepEqual(batch!.ids, Int32Array.of(10, 11, 12, 13));
 * assert.deepEqual(batch!.targets, Int32Array.of(11, 12, 13, 14));
 * ```
 */
export function tokenBatches(options: TokenBatchOptions): SeekableBatches<TokenBatch> {
  const { tokens, seq, vocabularySize } = options;
  const rows = rowCount(tokens.length, seq);
  const needed = rowsNeeded(options) * seq + 1;
  if (tokens.length < needed) {
    throw new RangeError(
      `Cannot make micro-batches: the run needs at least ${needed} tokens, ` +
        `received ${tokens.length}`,
    );
  }
  if (isArray(tokens)) checkTokens(tokens, vocabularySize);
  else if (tokens.largest) {
    const { id, position } = tokens.largest;
    checkTokens(Uint32Array.of(id), vocabularySize, position);
  }
  const selections = batchRows(rows, options);
  return seekable((skipped) => generateBatches(selections.from(skipped), skipped, options));
}

const isArray = (tokens: Tokens | TokenFile): tokens is Tokens => ArrayBuffer.isView(tokens);

function* generateBatches(
  rows: Iterable<readonly number[]>,
  first: number,
  options: TokenBatchOptions,
): Generator<TokenBatch, void> {
  const { tokens, seq, vocabularySize, microBatches, replicas = 1, fromStep = 1 } = options;
  using reader = isArray(tokens) ? readerOf(tokens) : tokens.open();
  let number = first;
  for (const micro of rows) {
    const ids = new Int32Array(micro.length * seq);
    const targets = new Int32Array(micro.length * seq);
    try {
      micro.forEach((row, j) => {
        const read = reader.read(row * seq, seq + 1, vocabularySize);
        ids.set(read.subarray(0, seq), j * seq);
        targets.set(read.subarray(1), j * seq);
      });
    } catch (cause) {
      const ofStep = replicas * microBatches, step = Math.floor(number / ofStep) + fromStep;
      throw nameError(`Cannot make micro-batch ${number % ofStep} of step ${step}`, cause);
    }
    number++;
    yield { ids, targets };
  }
}

/**
 * Whole rows of `seq` tokens, each with the token after it.
 *
 * @throws {RangeError} when `seq` is not a whole number from 1.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { rowCount } from "@troupe/troupe/kernels";
 *
 * assert.equal(rowCount(17, 8), 2);
 * assert.equal(rowCount(16, 8), 1);
 * ```
 */
export function rowCount(tokens: number, seq: number): number {
  if (!Number.isSafeInteger(seq) || seq < 1) {
    throw new RangeError(
      `Cannot cut tokens into rows: seq must be a whole number from 1, received ${seq}`,
    );
  }
  return Math.max(0, Math.floor((tokens - 1) / seq));
}

/**
 * Splits tokens into a part to train on and its end, which is held out; both in whole rows.
 *
 * The token between the parts is the last target of the one and the first input of the other, so
 * nothing that is held out is ever predicted in training.
 *
 * @param heldOut share of the rows (default a tenth); at least one row goes to either part.
 * @throws {RangeError} when there are fewer than two rows, or `heldOut` is not between 0 and 1.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { splitTokens } from "@troupe/troupe/kernels";
 *
 * const { train, heldOut } = splitTokens(new Uint8Array(2 * 20 + 1), 2);
 * assert.equal(train.length, 2 * 18 + 1);
 * assert.equal(heldOut.length, 2 * 2 + 1);
 * ```
 */
export function splitTokens<T extends Tokens>(
  tokens: T,
  seq: number,
  heldOut = 0.1,
): { train: T; heldOut: T } {
  const rows = rowCount(tokens.length, seq);
  if (rows < 2) {
    throw new RangeError(
      `Cannot hold tokens out: the text must have at least ${2 * seq + 1} tokens ` +
        `(two rows of ${seq}), received ${tokens.length}`,
    );
  }
  if (!(heldOut > 0 && heldOut < 1)) {
    throw new RangeError(
      `Cannot hold tokens out: the share must be between 0 and 1, received ${heldOut}`,
    );
  }
  const trainRows = rows - Math.min(rows - 1, Math.max(1, Math.round(rows * heldOut)));
  return {
    train: tokens.subarray(0, trainRows * seq + 1) as T,
    heldOut: tokens.subarray(trainRows * seq, rows * seq + 1) as T,
  };
}

/** Micro-batches of an evaluation unless asked otherwise. */
const EVALUATION_MICRO_BATCHES = 16;

/**
 * The micro-batches of an evaluation, the same each time.
 *
 * @param options `count` micro-batches of `microBatch` rows; fewer where the tokens have fewer rows.
 * @throws {RangeError} when there are not enough tokens for one micro-batch, or a token is outside
 * the vocabulary.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { heldOutBatches } from "@troupe/troupe/kernels";
 *
 * const tokens = Uint8Array.from({ length: 41 }, (_, i) => i);
 * const batches = heldOutBatches({ tokens, seq: 4, vocabularySize: 64, microBatch: 1, count: 5 });
 * assert.deepEqual(batches.map(({ ids }) => ids[0]), [0, 8, 16, 24, 32]);
 * ```
 */
export function heldOutBatches(options: {
  readonly tokens: Tokens | TokenFile;
  readonly seq: number;
  readonly vocabularySize: number;
  readonly microBatch: number;
  readonly count?: number;
}): TokenBatch[] {
  const { tokens, seq, microBatch, count = EVALUATION_MICRO_BATCHES } = options;
  const rows = rowCount(tokens.length, seq);
  if (rows < microBatch) {
    throw new RangeError(
      `Cannot evaluate: there must be at least ${microBatch} held-out rows of ${seq} tokens, received ${rows}; use more data or a smaller micro-batch`,
    );
  }
  const used = Math.min(count, Math.floor(rows / microBatch)) * microBatch;
  const order = (row: number) => Math.floor(row * rows / used);
  const plan = { microBatches: 1, replicas: 1, steps: used / microBatch, order };
  return [...tokenBatches({ ...options, ...plan })];
}
