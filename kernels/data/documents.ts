/**
 * Micro-batches of documents, each a sample: none is cut, and a micro-batch is as long as its longest
 * document needs.
 *
 * @module
 */

import { lengthsOf } from "../batch.ts";
import { assertInput, nameError, refusal } from "../errors.ts";
import {
  type BatchPlan,
  batchRows,
  isArray,
  type RowOrder,
  seekable,
  type SeekableBatches,
  shuffledOrder,
  type TokenBatch,
} from "./token_batches.ts";
import { checkTokens, readerOf, type TokenFile, type Tokens } from "./token_file.ts";

/** Options of {@linkcode documentBatches}. */
export interface DocumentBatchOptions extends BatchPlan {
  /** Tokens of all documents, one after the other. */
  readonly tokens: Tokens | TokenFile;
  /** Tokens of each document, from 1 to `seq`. */
  readonly documents: Uint32Array;
  /** True if they are pairs of a source and its target. Default false. */
  readonly arePairs?: boolean | undefined;
  /** Most tokens of a document. */
  readonly seq: number;
  /** Rows of the embedding; every token must be less. */
  readonly vocabularySize: number;
  /** Pads a micro-batch to the least eighth of `seq` that holds it, not to `seq`. Default false. */
  readonly lengths?: boolean | undefined;
  /** Seed of an order in which the samples of a micro-batch have similar lengths. Default: `order`. */
  readonly groupSeed?: number | undefined;
}

type Documents = Pick<DocumentBatchOptions, "documents" | "arePairs">;

/** Returns the length of each sample: that of its document, or of the longer one of a pair. */
export const sampleLengths = ({ documents, arePairs }: Documents): Uint32Array =>
  !arePairs ? documents : Uint32Array.from(
    { length: documents.length / 2 },
    (_, i) => Math.max(documents[2 * i]!, documents[2 * i + 1]!),
  );

/** Returns the number of tokens of documents. */
export const tokensIn = (documents: Uint32Array): number =>
  documents.reduce((sum, length) => sum + length, 0);

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
 *
 * const lengths = Uint32Array.of(1, 9, 2, 8), order = groupedOrder(lengths, 2, 7);
 * const pairs = [[0, 1], [2, 3]].map((rows) => rows.map((row) => lengths[order(row)]!).sort());
 * assert.deepEqual(pairs.sort(), [[1, 2], [8, 9]]);
 * ```
 */
export function groupedOrder(lengths: Uint32Array, microBatch: number, seed: number): RowOrder {
  const samples = lengths.length, shuffled = shuffledOrder(samples, seed);
  let cached = -1, order: number[] = [];
  return (row) => {
    const epoch = Math.floor(row / samples);
    if (epoch !== cached) {
      const all = Array.from({ length: samples }, (_, i) => shuffled(epoch * samples + i))
        .sort((a, b) => lengths[a]! - lengths[b]!);
      // The first samples complete the micro-batch that began in the epoch before.
      const first = (microBatch - epoch * samples % microBatch) % microBatch;
      const groups = Math.max(0, Math.floor((samples - first) / microBatch));
      const groupOf = shuffledOrder(Math.max(1, groups), seed);
      order = all.map((own, i) => {
        const group = Math.floor((i - first) / microBatch);
        if (group < 0 || group >= groups) return own;
        return all[
          first + groupOf(epoch * groups + group) * microBatch + (i - first) % microBatch
        ]!;
      });
      cached = epoch;
    }
    return order[row % samples]!;
  };
}

/**
 * Makes micro-batches of documents. The ids of a sample are its document, padded with 0; each predicts
 * the next one, the last one nothing, which is a target of −1. The ids of a pair are its source, its
 * targets are its target.
 *
 * @throws {RangeError} immediately, when a token is outside the vocabulary, the lengths do not fit the
 * tokens or `seq`, or there are too few documents; tokens of a file are checked as they are read.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { documentBatches } from "@troupe/troupe/kernels";
 *
 * const tokens = Uint8Array.of(10, 11, 12, 20), documents = Uint32Array.of(3, 1);
 * const plan = { microBatch: 2, microBatches: 1, steps: 1, lengths: true };
 * const [batch] = documentBatches({ tokens, documents, seq: 8, vocabularySize: 256, ...plan });
 * assert.deepEqual(batch!.ids, Int32Array.of(10, 11, 12, 20, 0, 0));
 * assert.deepEqual(batch!.targets, Int32Array.of(11, 12, -1, -1, -1, -1));
 * ```
 */
export function documentBatches(options: DocumentBatchOptions): SeekableBatches<TokenBatch> {
  const { tokens, documents, arePairs, seq, vocabularySize, lengths, groupSeed } = options;
  checkLengths(options);
  if (isArray(tokens)) checkTokens(tokens, vocabularySize);
  const starts = new Float64Array(documents.length), samples = sampleLengths(options);
  for (let i = 1; i < starts.length; i++) starts[i] = starts[i - 1]! + documents[i - 1]!;
  const sizes = lengths ? lengthsOf(seq) : [seq];
  const order = groupSeed === undefined
    ? options.order
    : groupedOrder(samples, options.microBatch, groupSeed);
  const selections = batchRows(samples.length, { ...options, order });
  return seekable(function* (skipped) {
    using reader = isArray(tokens) ? readerOf(tokens) : tokens.open();
    const read = (document: number, from = 0) =>
      reader.read(starts[document]! + from, documents[document]! - from, vocabularySize);
    let number = skipped;
    for (const rows of selections.from(skipped)) {
      const longest = Math.max(...rows.map((row) => samples[row]!));
      const size = sizes.findLast((one) => one >= longest)!;
      const ids = new Int32Array(rows.length * size), targets = new Int32Array(ids.length).fill(-1);
      try {
        for (const [i, row] of rows.entries()) {
          ids.set(read(arePairs ? 2 * row : row), i * size);
          targets.set(arePairs ? read(2 * row + 1) : read(row, 1), i * size);
        }
      } catch (cause) {
        throw nameError(`Cannot make micro-batch ${number}`, cause);
      }
      number++;
      yield { ids, targets };
    }
  });
}

function checkLengths({ tokens, documents, arePairs, seq }: DocumentBatchOptions): void {
  const what = "make micro-batches of documents", sum = tokensIn(documents);
  const wrong = documents.findIndex((length) => length < 1 || length > seq);
  if (wrong >= 0) {
    const must = `each must have from 1 to ${seq} tokens, those of a sample`;
    throw refusal(what, must, `${documents[wrong]} at position ${wrong}`);
  }
  assertInput(sum <= tokens.length, what, `there must be ${sum} tokens`, tokens.length);
  const isWhole = !arePairs || documents.length % 2 === 0;
  assertInput(isWhole, what, "those of pairs must be even in number", documents.length);
}
