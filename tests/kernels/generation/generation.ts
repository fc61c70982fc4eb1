/** Generation with a cache of keys and values, against whole forwards. */

import assert from "node:assert/strict";
import {
  compileModel,
  generate,
  gpt2,
  gpt2Logits,
  gpt2Ties,
  initialValues,
  openDevice,
  openPredictor,
  substream,
} from "../../../kernels/mod.ts";
import { openCachedGpt2 } from "../../../kernels/generation/cached_gpt2.ts";
import type { RegisterTest } from "../../devices.ts";

const CONFIG = { layers: 2, hidden: 16, heads: 2, seq: 24, vocab: 40, tie: true };

/** Weights so large that logits depend on every token before. */
const WEIGHTS = new Map(
  compileModel(gpt2(CONFIG, 1), "none").parameters.map(({ name, spec }) => {
    const initializer = { kind: "normal", deviation: 0.3 } as const;
    return [name, initialValues({ ...spec, initializer }, name, 1)];
  }),
);

/** Logits after each token of a context of at most `seq`, by one whole forward. */
async function openWhole(device: Awaited<ReturnType<typeof openDevice>>) {
  const { seq, vocab } = CONFIG;
  const predict = await openPredictor(device, gpt2Logits(CONFIG), WEIGHTS, gpt2Ties(CONFIG));
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

/** Registers the tests of a device. */
export function testGeneration(name: string, test: RegisterTest = Deno.test): void {
  test(`${name}: with a cache the logits after each token are those of a whole forward`, async () => {
    const device = await openDevice(name), { seq, vocab } = CONFIG;
    try {
      const context = Array.from({ length: seq }, (_, i) => (7 * i + 3) % vocab);
      const wanted = await (await openWhole(device))(context);
      const held = device.allocatedBytes, model = await openCachedGpt2(device, CONFIG, WEIGHTS);
      // By single tokens, after a prompt of 5 of 16 rows, and after one of 17 of 24.
      for (const prompt of [1, 5, 17]) {
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
    } finally {
      device.close();
    }
  });

  test(`${name}: the tokens are those that whole forwards give, also beyond the context`, async () => {
    const device = await openDevice(name), { seq } = CONFIG;
    try {
      const whole = await openWhole(device);
      for (const [temperature, slide] of [[0, 1], [1, 9]] as const) {
        const options = { config: CONFIG, weights: WEIGHTS, prompt: [3, 5, 8], tokens: 32 };
        const got = await Array.fromAsync(
          generate(device, { ...options, temperature, slide, seed: 2 }),
        );
        const generator = substream(2, "generate"), context = [...options.prompt];
        for (let i = 0, start = 0; i < options.tokens; i++) {
          if (context.length - start > seq) start = context.length - seq + slide - 1;
          const logits = (await whole(context.slice(start))).at(-1)!;
          context.push(draw(logits, temperature, (generator.next() >>> 0) / 2 ** 32));
        }
        assert.deepEqual(got, context.slice(3), `temperature ${temperature}, slide ${slide}`);
      }
    } finally {
      device.close();
    }
  });
}
