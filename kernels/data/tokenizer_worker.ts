/**
 * The worker that reads and runs a `tokenizer.json`: its regular expressions may take exponential
 * time, and another isolate can terminate it.
 *
 * @module
 */

import { Tokenizer } from "@huggingface/tokenizers";
import { parentPort, workerData } from "node:worker_threads";
import { GPT2_MAX } from "../precision.ts";
import { repeatedKey } from "./files.ts";
import type { Tokens } from "./token_file.ts";
import { applyRules, splittingSpaces } from "./tokenizer_rules.ts";

/** Common tokens that start and end a text. */
const ENDS = [
  ["<|endoftext|>", "<|endoftext|>"],
  ["<s>", "</s>"],
  ["<bos>", "<eos>"],
  ["[BOS]", "[EOS]"],
] as const;

/** Models that the library supports. */
const MODELS: readonly unknown[] = ["BPE", "Unigram", "WordPiece"];

/** Decoded text of an unknown id. */
const UNKNOWN = "\uFFFD";

let read: Tokenizer, vocabularySize: number;

/** A question to the worker. */
export type TokenizerQuestion =
  | readonly ["encode", text: string]
  | readonly ["decode", ids: readonly number[]];

/** Its answer. */
export type TokenizerAnswer = { readonly value: unknown } | { readonly problem: string };

applyRules();

function open(bytes: Uint8Array) {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  const json = JSON.parse(text), twice = repeatedKey(text);
  if (twice !== undefined) throw new SyntaxError(`the name ${shown(twice)} twice`);
  // The library allocates memory up to the largest id.
  const ids = idsOf(json);
  vocabularySize = 1 + ids.values().reduce((a, b) => Math.max(a, b), -1);
  json.pre_tokenizer &&= splittingSpaces(json.pre_tokenizer);
  read = new Tokenizer(json, {});
  read.encode("a");
  const ends = ENDS.find((tokens) => tokens.every((token) => ids.has(token)));
  return { vocabularySize, bos: ends && ids.get(ends[0]), eos: ends && ids.get(ends[1]), ends };
}

function encode(text: string): Tokens {
  const { ids, tokens } = read.encode(text), unknown = ids.findIndex((id) => !Number.isInteger(id));
  if (unknown >= 0) {
    throw new SyntaxError(`no token for ${shown(tokens[unknown])}, and no unknown one`);
  }
  return vocabularySize <= 2 ** 16 ? Uint16Array.from(ids) : Int32Array.from(ids);
}

const decode = (ids: readonly number[]): string =>
  runsOf(ids).map((run) =>
    run.length === 0 ? UNKNOWN : read.decode(run, { clean_up_tokenization_spaces: false })
  ).join("");

/**
 * Returns the id of each token.
 *
 * @throws {SyntaxError} with the invalid value.
 */
function idsOf(json: unknown): ReadonlyMap<string, number> {
  const { model, added_tokens: added = [] } = recordOf(json), { type, vocab } = recordOf(model);
  const { continuing_subword_prefix: prefix } = recordOf(model);
  // The library leaves it out.
  if (type === "BPE" && prefix) throw new SyntaxError(`BPE with the prefix ${shown(prefix)}`);
  if (!MODELS.includes(type)) throw new SyntaxError(`a model of type ${shown(type)}`);
  if (!Array.isArray(added)) throw new SyntaxError("added_tokens that are no list");
  const own: [unknown, unknown][] = Array.isArray(vocab)
    ? vocab.map((entry, id) => [entry?.[0], id])
    : Object.entries(recordOf(vocab));
  const all = [...own, ...added.map((one) => [recordOf(one).content, recordOf(one).id])];
  for (const [token, id] of all) {
    const isId = Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < GPT2_MAX.vocab;
    if (!isId || typeof token !== "string") {
      throw new SyntaxError(`the id ${shown(id)} of the token ${shown(token)}`);
    }
  }
  return new Map(all as [string, number][]);
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  throw new SyntaxError(`${shown(value)} where a record must be`);
}

/** Formats a value in a few words: a list or an object may be too deep to be written. */
const shown = (value: unknown): string =>
  typeof value === "object" && value !== null
    ? "an object"
    : JSON.stringify(typeof value === "string" ? value.slice(0, 80) : value) ?? "nothing";

/** Splits ids into runs of known ids; an empty run stands for an unknown id. */
function runsOf(ids: readonly number[]): number[][] {
  const runs: number[][] = [];
  for (const id of ids) {
    if (id >= vocabularySize) runs.push([]);
    else if (runs.at(-1)?.length) runs.at(-1)!.push(id);
    else runs.push([id]);
  }
  return runs;
}

// The library would print text of an untrusted file without escaping it.
Object.assign(console, { warn() {} });

function answer(compute: () => unknown): void {
  let answer: TokenizerAnswer;
  try {
    answer = { value: compute() };
  } catch (error) {
    // Engine errors from the library's code do not help a user.
    const isRaw = error instanceof TypeError || error instanceof RangeError ||
      /undefined|\[object/.test(String(error));
    const problem = isRaw ? "bytes or values of another kind" : (error as Error).message;
    const line = JSON.stringify(problem.slice(0, 200)).slice(1, -1);
    answer = { problem: line.replaceAll('\\"', '"') };
  }
  parentPort!.postMessage(answer);
}

parentPort!.on(
  "message",
  ([name, given]: TokenizerQuestion) =>
    answer(() => name === "encode" ? encode(given) : decode(given)),
);
answer(() => open(workerData));
