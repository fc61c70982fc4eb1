/**
 * Tokenizers out of a `tokenizer.json`, as Hugging Face's tokenizers write it. The file may be a
 * stranger's: it is data, bounded, and names nothing.
 *
 * @module
 */

import { GPT2_MAX } from "../layers/model_sizes.ts";
import { repeatedKey } from "../files/repeated_key.ts";
import type { Tokenizer } from "./tokenizer.ts";
import type { Tokens } from "./tokens.ts";

/** The most bytes of a `tokenizer.json`: a quarter of a million tokens with their merges have half. */
export const TOKENIZER_BYTES_MAX = 2 ** 26;

/** Tokens that begin and end a text, by the names that they usually have. */
const ENDS = [
  ["<|endoftext|>", "<|endoftext|>"],
  ["<s>", "</s>"],
  ["<bos>", "<eos>"],
  ["[BOS]", "[EOS]"],
] as const;

/** A tokenizer that was read from a file. */
export interface FileTokenizer extends Tokenizer {
  /** The name that a checkpoint's config holds. */
  readonly name: "tokenizer.json";
  /** The special token that begins a text, where it has one. */
  readonly bos: number | undefined;
  /** The special token that ends a text, where it has one. */
  readonly eos: number | undefined;
  /** A token by its id, special or not, as it is written out. */
  textOf(id: number): string | undefined;
}

/**
 * Reads a `tokenizer.json`. Ids are those of Hugging Face's own tokenizers, special tokens included:
 * one that is written out in a text is its id, and those that a template adds are added.
 *
 * @param path for messages.
 * @throws {SyntaxError} when the bytes are no such file, or an id is none that a model may have.
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
 * assert.deepEqual([...encode("abb<|endoftext|>"), eos], [2, 1, 3, 3]);
 * ```
 */
export async function parseTokenizer(bytes: Uint8Array, path: string): Promise<FileTokenizer> {
  const { Tokenizer: Parsed } = await import("@huggingface/tokenizers");
  let read: InstanceType<typeof Parsed>, ids: ReadonlyMap<string, number>;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    const json = JSON.parse(text), twice = repeatedKey(text);
    if (twice !== undefined) throw new TypeError(`the name ${shown(twice)} twice`);
    // The library takes memory for as many ids as the largest.
    ids = idsOf(json);
    read = new Parsed(json, {});
    read.encode("a");
  } catch (cause) {
    const received = JSON.stringify((cause as Error).message.slice(0, 200)).slice(1, -1)
      .replaceAll('\\"', '"');
    throw new SyntaxError(
      `Cannot read ${path}: it must be a tokenizer.json of Hugging Face's tokenizers, received ${received}`,
      { cause },
    );
  }
  const vocabularySize = 1 + ids.values().reduce((a, b) => Math.max(a, b), -1);
  const idOf = (token: string) => ids.get(token);
  const ends = ENDS.find((tokens) => tokens.every((token) => idOf(token) !== undefined));
  return {
    name: "tokenizer.json",
    vocabularySize,
    bos: ends && idOf(ends[0]),
    eos: ends && idOf(ends[1]),
    textOf: (id) => [...ids].find(([, one]) => one === id)?.[0],
    encode: (text) => narrow(read.encode(text).ids, vocabularySize),
    decode: (ids) =>
      runsOf(ids, vocabularySize).map((run) =>
        run.length === 0 ? UNKNOWN : read.decode(run, { clean_up_tokenization_spaces: false })
      ).join(""),
  };
}

/** The models that the library knows. */
const MODELS: readonly unknown[] = ["BPE", "Unigram", "WordPiece"];

/**
 * The id of each token.
 *
 * @throws {TypeError} saying what was received that cannot be one.
 */
function idsOf(json: unknown): ReadonlyMap<string, number> {
  const { model, added_tokens: added = [] } = recordOf(json), { type, vocab } = recordOf(model);
  if (!MODELS.includes(type)) throw new TypeError(`a model of type ${shown(type)}`);
  if (!Array.isArray(added)) throw new TypeError("added_tokens that are no list");
  const own: [unknown, unknown][] = Array.isArray(vocab)
    ? vocab.map((entry, id) => [entry?.[0], id])
    : Object.entries(recordOf(vocab));
  const all = [...own, ...added.map((one) => [recordOf(one).content, recordOf(one).id])];
  for (const [token, id] of all) {
    const isId = Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < GPT2_MAX.vocab;
    if (!isId || typeof token !== "string") {
      throw new TypeError(`the id ${shown(id)} of the token ${shown(token)}`);
    }
  }
  return new Map(all as [string, number][]);
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  throw new TypeError(`${shown(value)} where a record must be`);
}

/** A value in a few words: a list or an object may be too deep to be written out. */
const shown = (value: unknown): string =>
  typeof value === "object" && value !== null
    ? "an object"
    : JSON.stringify(typeof value === "string" ? value.slice(0, 80) : value) ?? "nothing";

/** What an id that is none of the vocabulary reads as. */
const UNKNOWN = "\uFFFD";

/** Ids that are known, in runs; an empty one stands for an id that is not. */
function runsOf(ids: Iterable<number>, vocabularySize: number): number[][] {
  const runs: number[][] = [];
  for (const id of ids) {
    if (id >= vocabularySize) runs.push([]);
    else if (runs.at(-1)?.length) runs.at(-1)!.push(id);
    else runs.push([id]);
  }
  return runs;
}

const narrow = (ids: readonly number[], vocabularySize: number): Tokens =>
  vocabularySize <= 2 ** 16 ? Uint16Array.from(ids) : Int32Array.from(ids);
