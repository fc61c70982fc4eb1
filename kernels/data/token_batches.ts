/**
 * Micro-batches of a language model: rows of tokens, each token predicting the next one.
 *
 * Row r takes tokens r·seq … r·seq + seq; its inputs are the first `seq` of them and its targets
 * the last `seq`. Neighbouring rows share one token, and every token except the first is predicted
 * once. Or each document is a sample.
 *
 * @module
 */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { lengthsOf } from "../batch.ts";
import { assertInput, checkPositive, nameErrors, refusal } from "../errors.ts";
import { substream } from "../random.ts";
import { checkTokens, readerOf, type TokenFile, type Tokens } from "./token_file.ts";

/** Maps the number of a row in the run (from 0, unlimited) to a row of the data. */
export type RowOrder = (row: number) => number;

/**
 * Returns an order that reads each row once per epoch, with a different permutation for every epoch.
 *
 * The permutation of an epoch is a function of `(seed, epoch)` only, so a resumed run, another
 * worker, and a replay in any order get the same rows.
 *
 * @param rows in the data.
 * @throws {RangeError} when `rows` is not from 1 to 2^32 − 1, or `seed` is not an integer.
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
  const isCount = Number.isInteger(rows) && rows >= 1 && rows < 2 ** 32;
  assertInput(isCount, "shuffle rows", "their number must be whole, from 1 to 2^32 - 1", rows);
  assertInput(Number.isSafeInteger(seed), "shuffle rows", "the seed must be an integer", seed);
  return epochOrder(rows, (epoch) => permute(rows, seed, epoch));
}

/** Returns an order that reads each row once per epoch. */
function epochOrder(rows: number, orderOf: (epoch: number) => ArrayLike<number>): RowOrder {
  // A micro-batch may span two epochs, but reads its rows in order: caching one epoch suffices.
  let cachedEpoch = -1;
  let permutation: ArrayLike<number> = [];
  return (row) => {
    const epoch = Math.floor(row / rows);
    if (epoch !== cachedEpoch) {
      permutation = orderOf(epoch);
      cachedEpoch = epoch;
    }
    return permutation[row % rows]!;
  };
}

/**
 * Returns an order like {@linkcode shuffledOrder} in which the samples of a micro-batch have similar
 * lengths: each epoch is shuffled, sorted by length, cut into micro-batches, and these are shuffled. It
 * is a function of `(seed, epoch)` only. A micro-batch that spans two epochs has the longest samples of
 * the first one.
 *
 * @param lengths of all samples.
 * @param microBatch samples of a micro-batch.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { groupedOrder } from "@troupe/troupe/kernels";
 *
 * const lengths = Uint32Array.of(1, 9, 2, 8), order = groupedOrder(lengths, 2, 7);
 * const pairs = [[0, 1], [2, 3]].map((rows) => rows.map((row) => lengths[order(row)]!).sort());
 * assert.deepEqual(pairs.sort(), [[1, 2], [8, 9]]);
 * ```
 */
export function groupedOrder(lengths: Uint32Array, microBatch: number, seed: number): RowOrder {
  const samples = lengths.length;
  return epochOrder(samples, (epoch) => {
    const all = [...permute(samples, seed, epoch)].sort((a, b) => lengths[a]! - lengths[b]!);
    // The first samples complete the micro-batch that began in the epoch before.
    const first = (microBatch - epoch * samples % microBatch) % microBatch;
    const groups = Math.max(0, Math.floor((samples - first) / microBatch));
    const at = (group: number) => first + group * microBatch;
    const shuffled = [...permute(groups, seed, epoch)]
      .flatMap((group) => all.slice(at(group), at(group + 1)));
    return [...all.slice(0, first), ...shuffled, ...all.slice(at(groups))];
  });
}

/** Fisher–Yates over 0 … rows − 1. */
function permute(rows: number, seed: number, epoch: number): Uint32Array<ArrayBuffer> {
  const random = substream(seed, `epoch ${epoch}`);
  const permutation = Uint32Array.from({ length: rows }, (_, i) => i);
  for (let i = rows - 1; i > 0; i--) {
    const j = uniformInt(random, 0, i);
    [permutation[i], permutation[j]] = [permutation[j]!, permutation[i]!];
  }
  return permutation;
}

/** Steps and micro-batches of a run. */
export interface BatchPlan {
  /** B: rows of a micro-batch. */
  readonly microBatch: number;
  /** N: micro-batches of one data-parallel replica in a step. */
  readonly microBatches: number;
  /** W: data-parallel replicas (default 1). */
  readonly replicas?: number | undefined;
  /** First step to read for (default 1); a resumed run starts after its checkpoint. */
  readonly fromStep?: number | undefined;
  /** Steps to read for. Default: all data once; unlimited with `order`. */
  readonly steps?: number | undefined;
  /** Allows fewer micro-batches in the last step. Default false. */
  readonly lastIsSmaller?: boolean | undefined;
  /**
   * Row of the data for each row of the run, below {@linkcode rowCount} for tokens. Default: the data in
   * order, once.
   */
  readonly order?: RowOrder | undefined;
}

/** Micro-batches with random access. */
export interface SeekableBatches<T> extends Generator<T, void> {
  /** Yields the micro-batches from number `microBatch`, without computing earlier ones. */
  from(microBatch: number): Generator<T, void>;
}

/** Creates micro-batches with random access from a function that starts anywhere. */
const seekable = <T>(from: (microBatch: number) => Generator<T, void>): SeekableBatches<T> =>
  Object.assign(from(0), { from });

/** Makes each micro-batch from another one, such as its rows, and from its number, from 0. */
export const mapBatches = <T, U>(
  batches: SeekableBatches<T>,
  make: (batch: T, number: number) => U,
): SeekableBatches<U> =>
  seekable(function* (number) {
    for (const batch of batches.from(number)) yield make(batch, number++);
  });

/**
 * Yields the rows of each micro-batch, in the order of the global ids, step after step.
 *
 * @param rows in the data.
 * @throws {RangeError} immediately, when a number of the plan is not a positive integer, or the data
 * has too few rows ({@linkcode rowsNeeded}); later, when `order` returns a row that the data lacks.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const plan = { microBatch: 2, microBatches: 2, steps: 1, fromStep: 2 };
 * assert.deepEqual([...batchRows(9, plan)], [[4, 5], [6, 7]]);
 * assert.deepEqual([...batchRows(9, plan).from(1)], [[6, 7]]);
 * assert.throws(() => batchRows(7, plan), /8 rows, received 7/);
 * ```
 */
export function batchRows(rows: number, plan: BatchPlan): SeekableBatches<number[]> {
  const needed = rowsNeeded(plan), must = `the data must have at least ${needed} rows`;
  assertInput(rows >= needed, "make micro-batches", must, rows);
  const { microBatch, fromStep = 1, steps = Infinity, order, lastIsSmaller } = plan;
  const stepRows = rowsOfStep(plan), unit = lastIsSmaller ? microBatch : stepRows;
  const there = order ? Infinity : Math.floor(rows / unit) * unit;
  const end = Math.min((fromStep - 1 + steps) * stepRows, there);
  const start = (fromStep - 1) * stepRows;
  const rowOf = (place: number) => {
    const row = order ? order(place) : place;
    if (Number.isInteger(row) && row >= 0 && row < rows) return row;
    throw refusal("make micro-batches", `order must return a row from 0 to ${rows - 1}`, row);
  };
  return seekable(function* (skipped) {
    const isNumber = Number.isSafeInteger(skipped) && skipped >= 0;
    const whole = "the number of the first one must be a whole number from 0";
    assertInput(isNumber, "make micro-batches", whole, skipped);
    for (let first = start + skipped * microBatch; first < end; first += microBatch) {
      yield Array.from({ length: microBatch }, (_, j) => rowOf(first + j));
    }
  });
}

/**
 * Returns the smallest number of rows for a plan: all rows that it reads if the data is read once, in
 * order; one if an order repeats them.
 *
 * @throws {RangeError} when a number of the plan is not a whole number from 1 (steps: from 0).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { shuffledOrder } from "@troupe/troupe/kernels";
 *
 * const plan = { microBatch: 2, microBatches: 4, steps: 10 };
 * assert.equal(rowsNeeded(plan), 80);
 * assert.equal(rowsNeeded({ ...plan, order: shuffledOrder(5, 0) }), 1);
 * ```
 */
export function rowsNeeded(plan: BatchPlan): number {
  const { microBatch, microBatches, replicas = 1, fromStep = 1, steps = 1, order } = plan;
  checkPositive("make micro-batches", { microBatch, microBatches, replicas, fromStep });
  const isSteps = Number.isSafeInteger(steps) && steps >= 0;
  assertInput(isSteps, "make micro-batches", "steps must be a whole number from 0", steps);
  if (order) return 1;
  const missing = plan.lastIsSmaller && steps > 0 ? rowsOfStep(plan) - microBatch : 0;
  return rowsOfStep(plan) * (fromStep - 1 + steps) - missing;
}

function rowsOfStep({ microBatch, microBatches, replicas = 1 }: BatchPlan): number {
  return replicas * microBatches * microBatch;
}

/** One micro-batch; both arrays hold B rows of `seq` tokens and own their whole buffers. */
export type TokenBatch = {
  readonly ids: Int32Array<ArrayBuffer>;
  readonly targets: Int32Array<ArrayBuffer>;
};

/** Options of {@linkcode tokenBatches}. */
export interface TokenBatchOptions extends BatchPlan {
  /** The whole text as ids, in memory or in a file. */
  readonly tokens: Tokens | TokenFile;
  /** Tokens of a row. */
  readonly seq: number;
  /** Rows of the embedding; every token must be less. */
  readonly vocabularySize: number;
  /** Documents of the text: then each is a row, which predicts none of the next one. */
  readonly documents?: Documents | undefined;
}

/**
 * Cuts tokens into micro-batches, in the order of the global ids, step after step.
 *
 * @throws {RangeError} immediately, when a token is outside the vocabulary or there are too few
 * tokens; tokens of a file are checked again as they are read. Later, when `order` returns a row that
 * the data lacks.
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
  const { tokens, seq, vocabularySize, documents } = options, rows = rowsOf(options);
  if (documents) checkDocuments(documents, tokens.length, seq);
  const needed = documents ? 0 : rowsNeeded(options) * seq + 1;
  const must = `the run must have at least ${needed} tokens`;
  assertInput(tokens.length >= needed, "make micro-batches", must, tokens.length);
  if (isArray(tokens)) checkTokens(tokens, vocabularySize);
  else if (tokens.largest) {
    const { id, position } = tokens.largest;
    checkTokens(Uint32Array.of(id), vocabularySize, position);
  }
  const selections = batchRows(rows, options);
  const { microBatches, replicas = 1, fromStep = 1 } = options, ofStep = replicas * microBatches;
  return seekable(function* (number) {
    const make = documents && documentMaker(documents, seq);
    using reader = isArray(tokens) ? readerOf(tokens) : tokens.open();
    const read = (start: number, count: number) => reader.read(start, count, vocabularySize);
    for (const micro of selections.from(number)) {
      const step = Math.floor(number / ofStep) + fromStep;
      const cannot = `Cannot make micro-batch ${number++ % ofStep} of step ${step}`;
      yield nameErrors(cannot, () => make ? make(micro, read) : rowBatch(micro, seq, read));
    }
  });
}

const rowsOf = (
  { tokens, seq, documents }: Pick<TokenBatchOptions, "tokens" | "seq" | "documents">,
) => {
  if (typeof Object(tokens).open !== "function") checkArray(tokens);
  return documents ? sampleLengths(documents).length : rowCount(tokens.length, seq);
};

/** Throws unless tokens are an array of ids; floats would be cut off. */
function checkArray(tokens: unknown): void {
  const kinds = [Uint8Array, Uint16Array, Uint32Array, Int32Array];
  const must = `tokens must be one of ${kinds.map(({ name }) => name).join(", ")}`;
  const isArray = kinds.some((kind) => tokens instanceof kind);
  assertInput(isArray, "use tokens", must, (tokens as object | null)?.constructor.name, TypeError);
}

const isArray = (tokens: Tokens | TokenFile): tokens is Tokens => ArrayBuffer.isView(tokens);

function rowBatch(rows: readonly number[], seq: number, read: ReadTokens): TokenBatch {
  const ids = new Int32Array(rows.length * seq), targets = new Int32Array(rows.length * seq);
  rows.forEach((row, j) => {
    const tokens = read(row * seq, seq + 1);
    ids.set(tokens.subarray(0, seq), j * seq);
    targets.set(tokens.subarray(1), j * seq);
  });
  return { ids, targets };
}

/**
 * Documents of a text, one after the other. Each is one sample: none is cut, and a micro-batch is as long as its
 * longest one needs.
 */
export interface Documents {
  /** Tokens of each. */
  readonly lengths: Uint32Array;
  /** True if they are pairs of a source and its target. Default false. */
  readonly arePairs?: boolean | undefined;
  /** Pads a micro-batch to the least eighth of `seq` that holds it, not to `seq`. Default false. */
  readonly inEighths?: boolean | undefined;
}

/** Reads tokens from number `start`. */
type ReadTokens = (start: number, count: number) => Tokens;

/** Returns the number of tokens of documents. */
export const tokensIn = (lengths: Uint32Array): number =>
  lengths.reduce((sum, one) => sum + one, 0);

/** Returns the length of each sample: that of its document, or of the longer one of a pair. */
export const sampleLengths = ({ lengths, arePairs }: Documents): Uint32Array =>
  !arePairs ? lengths : Uint32Array.from(
    { length: lengths.length / 2 },
    (_, i) => Math.max(lengths[2 * i]!, lengths[2 * i + 1]!),
  );

/**
 * Checks documents of `tokens` tokens.
 *
 * @throws {RangeError} when they have more tokens, one is empty or longer than `seq`, or pairs are not
 * complete.
 */
function checkDocuments(
  { lengths, arePairs }: Documents,
  tokens: number,
  seq: number,
): void {
  const cannot = "make micro-batches of documents", sum = tokensIn(lengths);
  const wrong = lengths.findIndex((length) => length < 1 || length > seq);
  const must = `each must have from 1 to ${seq} tokens, those of a sample`;
  assertInput(wrong < 0, cannot, must, `${lengths[wrong]} at position ${wrong}`);
  assertInput(sum <= tokens, cannot, `there must be ${sum} tokens`, tokens);
  const isWhole = !arePairs || lengths.length % 2 === 0;
  assertInput(isWhole, cannot, "those of pairs must be even in number", lengths.length);
}

/**
 * Returns a function that makes a micro-batch of samples. The ids of a sample are its document, padded
 * with 0; each predicts the next one, the last one nothing, which is a target of −1. The ids of a pair
 * are its source, and its targets are its target.
 */
function documentMaker(documents: Documents, seq: number) {
  const { lengths, arePairs, inEighths } = documents, starts = new Float64Array(lengths.length);
  for (let i = 1; i < starts.length; i++) starts[i] = starts[i - 1]! + lengths[i - 1]!;
  const sizes = inEighths ? lengthsOf(seq) : [seq], samples = sampleLengths(documents);
  return (rows: readonly number[], read: ReadTokens) => {
    const longest = Math.max(...rows.map((row) => samples[row]!));
    const size = sizes.findLast((one) => one >= longest)!;
    const ids = new Int32Array(rows.length * size), targets = new Int32Array(ids.length).fill(-1);
    const write = (into: Int32Array, i: number, document: number, from = 0) =>
      into.set(read(starts[document]! + from, lengths[document]! - from), i * size);
    for (const [i, row] of rows.entries()) {
      write(ids, i, arePairs ? 2 * row : row);
      write(targets, i, arePairs ? 2 * row + 1 : row, arePairs ? 0 : 1);
    }
    return { ids, targets };
  };
}

/**
 * Returns the number of whole rows of `seq` tokens, each with the token after it.
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
  checkPositive("cut tokens into rows", { seq });
  return Math.max(0, Math.floor((tokens - 1) / seq));
}

/**
 * Splits tokens into a training part and a held-out part at the end, both in whole rows.
 *
 * The token between the parts is the last target of one and the first input of the other, so no
 * held-out token is predicted in training.
 *
 * @param heldOut share of the rows. Default a tenth; each part has at least one row.
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
  checkArray(tokens);
  const rows = rowCount(tokens.length, seq);
  const must = `the text must have at least ${2 * seq + 1} tokens (two rows of ${seq})`;
  assertInput(rows >= 2, "hold tokens out", must, tokens.length);
  const isShare = heldOut > 0 && heldOut < 1;
  assertInput(isShare, "hold tokens out", "the share must be between 0 and 1", heldOut);
  const trainRows = rows - Math.min(rows - 1, Math.max(1, Math.round(rows * heldOut)));
  return {
    train: tokens.subarray(0, trainRows * seq + 1) as T,
    heldOut: tokens.subarray(trainRows * seq, rows * seq + 1) as T,
  };
}

/** Default number of micro-batches of an evaluation. */
const EVALUATION_MICRO_BATCHES = 16;

/**
 * Returns the micro-batches of an evaluation, the same each time.
 *
 * @param options `count` micro-batches of `microBatch` rows, or fewer if there are fewer rows.
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
export function heldOutBatches(
  options: Omit<TokenBatchOptions, Exclude<keyof BatchPlan, "microBatch">> & {
    readonly count?: number;
  },
): TokenBatch[] {
  const { seq, microBatch, count = EVALUATION_MICRO_BATCHES } = options, rows = rowsOf(options);
  const unit = options.documents ? "samples" : `rows of ${seq} tokens`;
  const must = `there must be at least ${microBatch} held-out ${unit}`;
  const received = `${rows}; use more data or a smaller micro-batch`;
  assertInput(rows >= microBatch, "evaluate", must, received);
  const used = Math.min(count, Math.floor(rows / microBatch)) * microBatch;
  const order = (row: number) => Math.floor(row * rows / used);
  const plan = { microBatches: 1, replicas: 1, steps: used / microBatch, order };
  return [...tokenBatches({ ...options, ...plan })];
}
