/**
 * Micro-batches of a language model: rows of tokens, each predicting the next one.
 *
 * Row r takes tokens r·seq … r·seq + seq; its inputs are the first `seq` of them and its targets
 * the last `seq`. Neighbouring rows share one token, and every token but the first is predicted once.
 *
 * @module
 */

import { nameError } from "../name_error.ts";
import { type BatchPlan, batchRows, rowsNeeded, seekable, type SeekableBatches } from "./rows.ts";
import { readerOf, type TokenFile } from "./token_file.ts";
import { checkTokens, type Tokens } from "./tokens.ts";

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
