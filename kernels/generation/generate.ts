/**
 * Samples text from a trained GPT-2.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import type { Tokenizer } from "../data/tokenizer.ts";
import type { Device } from "../devices/device.ts";
import { type Gpt2Config, gpt2Logits, gpt2Ties } from "../layers/gpt2.ts";
import { openPredictor } from "./predict.ts";
import { substream } from "../random.ts";

/** What to generate. */
export interface GenerateOptions {
  /** The sizes of the model. */
  readonly config: Gpt2Config;
  /** Its weights by name. */
  readonly weights: ReadonlyMap<string, Float32Array>;
  /** Token ids to go on from; at least one. */
  readonly prompt: readonly number[];
  /** Number of tokens to add. */
  readonly tokens: number;
  /** 0 takes the likeliest token; 1 samples from the model's own distribution. Default 0.8. */
  readonly temperature?: number;
  /** Default 1. */
  readonly seed?: number;
}

/**
 * Generates tokens one by one; each sees the `seq` tokens before it.
 *
 * @throws {RangeError} when the prompt is empty or outside the vocabulary, or the temperature is
 * negative.
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
 * for await (const id of generate(device, { config, weights, prompt: [3], tokens: 5 })) ids.push(id);
 * assert.equal(ids.length, 5);
 * device.close();
 * ```
 */
export async function* generate(device: Device, options: GenerateOptions): AsyncGenerator<number> {
  const { config, weights, prompt, tokens, temperature = 0.8, seed = 1 } = options;
  const { seq, vocab } = config;
  const outside = prompt.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocab);
  if (prompt.length === 0 || outside >= 0) {
    throw new RangeError(
      `Cannot generate: the prompt must be one or more ids below ${vocab}, received ${
        prompt.length === 0 ? "none" : `${prompt[outside]} at position ${outside}`
      }`,
    );
  }
  if (!(temperature >= 0)) {
    throw new RangeError(`Cannot generate: temperature must be 0 or more, received ${temperature}`);
  }
  const predict = await openPredictor(device, gpt2Logits(config), weights, gpt2Ties(config));
  const generator = substream(seed, "generate");
  const context = [...prompt], ids = new Int32Array(seq);
  for (let i = 0; i < tokens; i++) {
    const visible = context.slice(-seq);
    ids.fill(0).set(visible); // later positions are masked, whatever they hold
    const logits = await predict({ ids });
    const start = (visible.length - 1) * vocab;
    const uniform = (generator.next() >>> 0) / 2 ** 32;
    const id = sample(logits.subarray(start, start + vocab), temperature, uniform);
    context.push(id);
    // Most devices keep the isolate's thread: without a timer no signal would be heard until the end.
    await delay(0);
    yield id;
  }
}

/** Draws an index with probability softmax(logits ÷ temperature). */
function sample(logits: Float32Array, temperature: number, uniform: number): number {
  const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  if (temperature === 0) return logits.indexOf(highest);
  const weights = Array.from(logits, (logit) => Math.exp((logit - highest) / temperature));
  let rest = uniform * weights.reduce((a, b) => a + b, 0);
  const index = weights.findIndex((weight) => (rest -= weight) < 0);
  return index < 0 ? weights.length - 1 : index;
}

/**
 * Generates text: the prompt, and what the model adds to it.
 *
 * @throws {RangeError} as {@linkcode generate}.
 */
export async function generateText(
  device: Device,
  tokenizer: Tokenizer,
  options: Omit<GenerateOptions, "prompt"> & { readonly prompt: string },
): Promise<string> {
  const prompt = [...tokenizer.encode(options.prompt)];
  const added = await Array.fromAsync(generate(device, { ...options, prompt }));
  return tokenizer.decode([...prompt, ...added]);
}
