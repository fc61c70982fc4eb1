/** Generation with a cache of keys and values, against whole forwards. */

import assert from "node:assert/strict";
import {
  compileModel,
  type Device,
  generate,
  gpt2,
  gpt2Logits,
  llama,
  llamaLogits,
  openDevice,
  openPredictor,
  openReference,
} from "../../../kernels/mod.ts";
import { substream } from "../../../kernels/random.ts";
import { openDecoder } from "../../../kernels/stage/inference.ts";
import { cachedLlama } from "../../../kernels/layers/llama.ts";
import { cachedGpt2 } from "../../../kernels/layers/gpt2.ts";
import { IS_DEEP } from "../../depth.ts";
import type { RegisterTest } from "../../devices.ts";
import { drawWeights } from "../stage/stage_runs.ts";

const CONFIG = { layers: 2, hidden: 16, heads: 2, seq: 20, vocab: 40, tie: true };

const GROUPED = { ...CONFIG, heads: 4, keyValueHeads: 2, ropeTheta: 50 };

/** Models that generate; the last of their layers has the logits of each token. */
const CASES = [
  ["gpt2", CONFIG, gpt2(CONFIG, 1), gpt2Logits(CONFIG), cachedGpt2(CONFIG)] as const,
  ["llama", GROUPED, llama(GROUPED, 1), llamaLogits(GROUPED, 1), cachedLlama(GROUPED)] as const,
].map(([architecture, config, model, whole, decoder]) => (
  { architecture, config, model, whole, decoder }
));

type Case = typeof CASES[number];

const weightsOf = ({ model }: Case) => drawWeights(compileModel(model, "none"), 0.3);

/** Logits after each token of a context of at most `seq`, by one whole forward. */
async function openWhole(device: Device, one: Case) {
  const { seq, vocab } = CONFIG;
  const predict = await openPredictor(device, one.whole, weightsOf(one), one.model.ties);
  return async (context: readonly number[]) => {
    const ids = new Int32Array(seq);
    ids.set(context);
    const all = await predict({ ids });
    return context.map((_, i) => all.slice(i * vocab, (i + 1) * vocab));
  };
}

/** The index at which the sum of softmax(logits ÷ temperature) passes a uniform number. */
function draw(logits: Float32Array, temperature: number, uniform: number): number {
  const highest = Math.max(...logits);
  if (temperature === 0) return logits.indexOf(highest);
  const weights = Array.from(logits, (logit) => Math.exp((logit - highest) / temperature));
  let rest = uniform * weights.reduce((a, b) => a + b, 0);
  return weights.findIndex((weight) => (rest -= weight) < 0);
}

/**
 * Registers the test of a device. Drawing and moving on are the same on all, and tested on the native
 * device, the fastest; the logits of others are those of the judge's whole forwards.
 */
export function testGeneration(name: string, test: RegisterTest = Deno.test): void {
  const isAll = IS_DEEP || name === "native";
  for (const one of CASES) {
    test(`${name}: generation of a ${one.architecture} with a cache is that of whole forwards`, async () => {
      const device = await openDevice(name), judge = isAll ? device : await openReference();
      try {
        const whole = await openWhole(judge, one);
        await compareLogits(device, one, whole, isAll ? [5, 1, 17] : [17]);
        if (isAll) await compareTokens(device, one, whole);
      } finally {
        judge.close();
        if (judge !== device) device.close();
      }
    });
  }
}

type Whole = Awaited<ReturnType<typeof openWhole>>;

/** After prompts, as 5 of 16 rows or 17 of 20, and by single tokens. */
async function compareLogits(device: Device, one: Case, whole: Whole, prompts: readonly number[]) {
  const { seq, vocab } = CONFIG;
  const context = Array.from({ length: seq }, (_, i) => (7 * i + 3) % vocab);
  const wanted = await whole(context), held = device.allocatedBytes;
  const model = await openDecoder(device, one.decoder, weightsOf(one));
  for (const prompt of prompts) {
    for (let count = prompt, seen = 0; count <= seq; seen = count++) {
      const logits = await model.logits(context.slice(0, count), seen);
      logits.forEach((got, i) => {
        const want = wanted[count - 1]![i]!;
        assert.ok(Math.abs(got - want) < 2e-5, `${prompt}, ${count}: ${got}, not ${want}`);
      });
    }
  }
  model.close();
  assert.equal(device.allocatedBytes, held);
}

/** The tokens that are drawn, also beyond the context, and after a prompt that is longer than it. */
async function compareTokens(device: Device, one: Case, whole: Whole): Promise<void> {
  const { architecture, config } = one, weights = weightsOf(one), { seq } = CONFIG;
  const options = { architecture, config, weights, tokens: 24, seed: 2 };
  const short = [3, 5, 8], long = Array.from({ length: seq + 7 }, (_, i) => i % 11);
  const cases = [[0, 1, short], [1, 9, short], [0, seq, long]] as const;
  for (const [temperature, slide, prompt] of cases) {
    const got = await Array.fromAsync(generate(device, { ...options, prompt, temperature, slide }));
    const generator = substream(2, "generate"), context = [...prompt];
    for (let i = 0, start = Math.max(0, prompt.length - seq); i < options.tokens; i++) {
      if (context.length - start > seq) start += slide;
      const logits = (await whole(context.slice(start))).at(-1)!;
      context.push(draw(logits, temperature, (generator.next() >>> 0) / 2 ** 32));
    }
    const kept = context.slice(prompt.length);
    assert.deepEqual(got, kept, `temperature ${temperature}, slide ${slide}`);
  }
}
