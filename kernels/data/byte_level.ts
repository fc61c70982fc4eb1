/**
 * `tokenizer.json` of Troupe's own tokenizers, as Hugging Face's tokenizers read it: byte-level BPE,
 * whose vocabulary has a printable character for each byte.
 *
 * @module
 */

import type { Announce } from "../files/npm_package.ts";
import { byteRanks } from "./tokenizer.ts";

/** The token of GPT-2 between two texts. */
const END_OF_TEXT = "<|endoftext|>";

/** A character for each byte: itself where it is printable, else one of those after the first 256. */
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
 * What `tokenizer.json` says of the tokenizer of bytes: each is a token, its own number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { bytesTokenizerJson, parseTokenizer } from "@troupe/troupe/kernels";
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
 * What `tokenizer.json` says of GPT-2's tokenizer. Its merges are fetched as those of
 * {@linkcode gpt2Tokenizer}.
 *
 * @throws {Error} as {@linkcode gpt2Tokenizer}.
 */
export async function gpt2TokenizerJson(
  announce?: Announce,
): Promise<Readonly<Record<string, unknown>>> {
  const tokens = await byteRanks(announce), end = tokens.length;
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

/** The two tokens that a token is merged of: what is left when all earlier merges are made. */
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
