/**
 * Text of tokens that come one by one.
 *
 * @module
 */

import type { Tokenizer } from "./tokenizer.ts";

/** Turns tokens into text as they come. */
export interface TextStream {
  /** What more of the text is certain with these ids; a character of which bytes are missing is not. */
  push(ids: readonly number[]): string;
  /** What was held back. */
  end(): string;
}

/** What a character reads as whose last bytes are missing. */
const CUT = "\uFFFD";

/**
 * The text of a tokenizer's ids, piece by piece: joined, the pieces are what `decode` makes of all ids.
 *
 * Ids are decoded behind those that were decoded before them, as what an id reads as may depend on
 * the one before.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { bytesTokenizer, textStream } from "@troupe/troupe/kernels";
 *
 * const { push, end } = textStream(bytesTokenizer());
 * assert.deepEqual([0x6e, 0xc3, 0xa9, 0xc3].map((id) => push([id])), ["n", "", "é", ""]);
 * assert.equal(end(), "\uFFFD");
 * ```
 */
export function textStream({ decode }: Pick<Tokenizer, "decode">): TextStream {
  // The last ids: where those begin that came after the text was whole, and how much of it was given.
  let ids: number[] = [], next = 0, given = 0;
  return {
    push(more) {
      ids = ids.concat(more);
      const text = decode(ids), isWhole = !text.endsWith(CUT);
      const certain = isWhole ? text : text.slice(0, -CUT.length), added = certain.slice(given);
      given = certain.length;
      if (isWhole) {
        ids = ids.slice(next);
        next = ids.length;
        given = decode(ids).length;
      }
      return added;
    },
    end: () => decode(ids).slice(given),
  };
}
