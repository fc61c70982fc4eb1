/**
 * Samples text from a trained decoder.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import type { Tokenizer } from "../data/tokenizer.ts";
import type { FileTokenizer } from "../data/tokenizer_json/tokenizer_json.ts";
import type { LlamaConfig } from "../architectures/llama.ts";
import { cachedLlama } from "../architectures/llama_cached.ts";
import type { Device } from "../devices/device.ts";
import type { Gpt2Config } from "../layers/gpt2.ts";
import { cachedGpt2 } from "../layers/gpt2_cached.ts";
import { substream } from "../random.ts";
import { openDecoder } from "./cached_decoder.ts";
import { checkSampling, sample, type SampleOptions } from "./sample.ts";

/** What to generate. */
export interface GenerateOptions extends SampleOptions {
  /** What the model is; `gpt2` unless given. */
  readonly architecture?: "gpt2" | "llama";
  /** The sizes of the model. */
  readonly config: Gpt2Config | LlamaConfig;
  /** Its weights by name. */
  readonly weights: ReadonlyMap<string, Float32Array>;
  /** Token ids to go on from; at least one. */
  readonly prompt: readonly number[];
  /** Number of tokens to add. */
  readonly tokens: number;
  /** Default 1. */
  readonly seed?: number;
  /**
   * By how many tokens the model's view moves on when the context has outgrown its `seq` tokens, from
   * 1 to `seq`; what it then sees is computed anew. Default 1: each token sees all `seq` before it.
   * With more it sees at least `seq` − `slide` + 1 of them, and a token costs less.
   */
  readonly slide?: number;
}

/** What can generate, by its sizes. */
const DECODERS = { gpt2: cachedGpt2, llama: cachedLlama } as const;

/**
 * Generates tokens one by one; each sees the `seq` tokens before it. Their keys and values are kept, so
 * that a token costs one row of the model while all fit.
 *
 * @throws {RangeError} when the architecture is none of those, the prompt is empty or outside the
 * vocabulary, `temperature`, `topK` or `topP` is out of its bounds, `slide` is not from 1 to `seq`, or
 * the model computes no finite number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, generate, gpt2, initialValues, openReference } from "@troupe/troupe/kernels";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 };
 * const { parameters } = compileModel(gpt2(config, 1), "none");
 * const weights = new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]));
 * const device = await openReference();
 * const ids = [];
 * const options = { config, weights, prompt: [3], tokens: 5, topK: 4, topP: 0.9 };
 * for await (const id of generate(device, options)) ids.push(id);
 * assert.equal(ids.length, 5);
 * device.close();
 * ```
 */
export async function* generate(device: Device, options: GenerateOptions): AsyncGenerator<number> {
  const { architecture = "gpt2", weights, prompt, tokens, seed = 1, slide = 1 } = options;
  if (!Object.hasOwn(DECODERS, architecture)) {
    throw new RangeError(
      `Cannot generate: architecture must be ${
        Object.keys(DECODERS).join(" or ")
      }, received ${architecture}`,
    );
  }
  const decoder = DECODERS[architecture](options.config), { seq, vocab } = decoder;
  const outside = prompt.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocab);
  if (prompt.length === 0 || outside >= 0) {
    throw new RangeError(
      `Cannot generate: the prompt must be one or more ids below ${vocab}, received ${
        prompt.length === 0 ? "none" : `${prompt[outside]} at position ${outside}`
      }`,
    );
  }
  checkSampling(options);
  if (!(Number.isInteger(slide) && slide >= 1 && slide <= seq)) {
    throw new RangeError(
      `Cannot generate: slide must be a whole number from 1 to ${seq}, received ${slide}`,
    );
  }
  const generator = substream(seed, "generate");
  const context = [...prompt], model = await openDecoder(device, decoder, weights);
  try {
    // From which token on the model sees the context, and how many it has seen.
    for (let i = 0, start = 0, seen = 0; i < tokens; i++) {
      if (context.length - start > seq) [start, seen] = [context.length - seq + slide - 1, 0];
      const logits = await model.logits(context.slice(start), seen);
      seen = context.length - start;
      const id = sample(logits, options, (generator.next() >>> 0) / 2 ** 32);
      context.push(id);
      // Most devices keep the isolate's thread: without a timer no signal would be heard until the end.
      await delay(0);
      yield id;
    }
  } finally {
    model.close();
  }
}

/**
 * Generates text: the prompt, and what the model adds to it.
 *
 * @throws {RangeError} as {@linkcode generate}.
 */
export async function generateText(
  device: Device,
  tokenizer: Tokenizer | FileTokenizer,
  options: Omit<GenerateOptions, "prompt"> & { readonly prompt: string },
): Promise<string> {
  const prompt = [...await tokenizer.encode(options.prompt)];
  const added = await Array.fromAsync(generate(device, { ...options, prompt }));
  return await tokenizer.decode([...prompt, ...added]);
}
