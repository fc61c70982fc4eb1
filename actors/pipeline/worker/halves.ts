/**
 * Arrays that travel, cut into equal pieces and put together again: the halves of a micro-batch.
 *
 * @module
 */

import type { MessageArray } from "../../../kernels/mod.ts";

/** One of `count` equal pieces, in the memory of the whole. */
export function pieceOf(array: MessageArray, index: number, count: number): MessageArray {
  if (count === 1) return array;
  const length = array.length / count;
  return array.subarray(index * length, (index + 1) * length);
}

/** The pieces one after the other; one alone stays as it is. */
export function joinPieces(pieces: readonly MessageArray[]): MessageArray {
  const [first] = pieces as [MessageArray];
  if (pieces.length === 1) return first;
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const whole = first instanceof Float32Array ? new Float32Array(length) : new Float16Array(length);
  let offset = 0;
  for (const piece of pieces) {
    whole.set(piece, offset);
    offset += piece.length;
  }
  return whole;
}
