/**
 * Text of tokens that come one by one.
 *
 * @module
 */

import type { Tokenizer } from "./tokenizer.ts";
import type { FileTokenizer } from "./tokenizer_json/tokenizer_json.ts";

/** Turns tokens into text as they come: each call waits for the one before. */
export interface TextStream {
  /** What more of the text is certain with these ids; a character of which bytes are missing is not. */
  push(ids: readonly number[]): Promise<string>;
  /** What was held back. */
  end(): Promise<string>;
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
 * const ids = [0x6e, 0xc3, 0xa9, 0xc3];
 * assert.deepEqual(await Array.fromAsync(ids, (id) => push([id])), ["n", "", "é", ""]);
 * assert.equal(await end(), "\uFFFD");
 * ```
 */
export function textStream({ decode }: Pick<Tokenizer | FileTokenizer, "decode">): TextStream {
  // The last ids: where those begin that came after the text was whole, and how much of it was given.
  let ids: number[] = [], next = 0, given = 0;
  return {
    async push(more) {
      ids = ids.concat(more);
      const text = await decode(ids), isWhole = !text.endsWith(CUT);
      const certain = isWhole ? text : text.slice(0, -CUT.length), added = certain.slice(given);
      given = certain.length;
      if (isWhole) {
        ids = ids.slice(next);
        next = ids.length;
        given = (await decode(ids)).length;
      }
      return added;
    },
    end: async () => (await decode(ids)).slice(given),
  };
}
