/**
 * Documents, each of which is one sample: none is cut, and a micro-batch is as long as its longest one
 * needs.
 *
 * @module
 */

import { lengthsOf } from "../batch.ts";
import { assertInput, refusal } from "../errors.ts";
import type { Tokens } from "./token_file.ts";

/** Documents of a text, one after the other. */
export interface Documents {
  /** Tokens of each. */
  readonly lengths: Uint32Array;
  /** True if they are pairs of a source and its target. Default false. */
  readonly arePairs?: boolean | undefined;
  /** Pads a micro-batch to the least eighth of `seq` that holds it, not to `seq`. Default false. */
  readonly inEighths?: boolean | undefined;
}

/** Reads tokens from number `start`. */
export type ReadTokens = (start: number, count: number) => Tokens;

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
export function checkDocuments(
  { lengths, arePairs }: Documents,
  tokens: number,
  seq: number,
): void {
  const cannot = "make micro-batches of documents", sum = tokensIn(lengths);
  const wrong = lengths.findIndex((length) => length < 1 || length > seq);
  if (wrong >= 0) {
    const must = `each must have from 1 to ${seq} tokens, those of a sample`;
    throw refusal(cannot, must, `${lengths[wrong]} at position ${wrong}`);
  }
  assertInput(sum <= tokens, cannot, `there must be ${sum} tokens`, tokens);
  const isWhole = !arePairs || lengths.length % 2 === 0;
  assertInput(isWhole, cannot, "those of pairs must be even in number", lengths.length);
}

/**
 * Returns a function that makes a micro-batch of samples. The ids of a sample are its document, padded
 * with 0; each predicts the next one, the last one nothing, which is a target of −1. The ids of a pair
 * are its source, and its targets are its target.
 */
export function documentMaker(documents: Documents, seq: number) {
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
