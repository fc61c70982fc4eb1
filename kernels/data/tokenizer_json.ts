/**
 * Tokenizers from a `tokenizer.json` of Hugging Face's tokenizers. The file may be untrusted: it is
 * data with bounds on size and time, and its names are never opened.
 *
 * @module
 */

import type { Worker } from "node:worker_threads";
import { builtin } from "../builtin.ts";
import { refusal } from "../errors.ts";
import type { Tokens } from "./token_file.ts";
import type { Tokenizer } from "./tokenizer.ts";
import type { TokenizerAnswer, TokenizerQuestion } from "./tokenizer_worker.ts";

/** Largest size of a `tokenizer.json` in bytes, twice that of 250,000 tokens with their merges. */
export const TOKENIZER_BYTES_MAX = 2 ** 26;

/** Milliseconds for any text: ten times those for the largest file. */
const TEXT_MS_MAX = 30_000;

/** Characters of a text per additional millisecond: GPT-2's tokenizer needs one for 300. */
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
  const opened = await ask<Pick<FileTokenizer, Opened>>("its own bytes", TEXT_MS_MAX);
  return {
    name: "tokenizer.json",
    ...opened,
    encode: (text) => inTurn(`a text of ${text.length} characters`, text.length, ["encode", text]),
    decode: (ids) => inTurn("ids", 0, ["decode", [...ids]]),
    close: () => void last.then(close),
  };
}

type Opened = "vocabularySize" | "bos" | "eos" | "ends";

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
