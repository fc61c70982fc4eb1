/**
 * The order in which an endless run reads a finite number of rows.
 *
 * @module
 */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { substream } from "../random.ts";

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
