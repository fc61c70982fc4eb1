/**
 * Micro-batches for evaluations: rows spread evenly over tokens that are never trained on.
 *
 * @module
 */

import { rowCount, type TokenBatch, tokenBatches } from "./token_batches.ts";
import type { TokenFile } from "./token_file.ts";
import type { Tokens } from "./tokens.ts";

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
