/** Micro-batches of different lengths, on any device. */

import assert from "node:assert/strict";
import {
  type Batch,
  compileModel,
  type DeviceName,
  gpt2,
  type Model,
  openDevice,
  splitBatch,
  type Stage,
  type TokenBatch,
} from "../../../kernels/mod.ts";
import {
  backward,
  compilingOnce,
  drawTokens,
  drawWeights,
  forward,
  gradientsOf,
  openStages,
} from "../stage/stage_runs.ts";
import type { RegisterTest } from "../../devices.ts";

/** Three layers. */
export const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 32 };

/** Tokens of the short sample; samples of a micro-batch. */
export const SHORT = 5, SAMPLES = 2;
const WPE = "transformer.wpe.weight";

/** Two samples of all tokens. */
export const [full] = drawTokens(1, SAMPLES * CONFIG.seq, CONFIG.vocab) as [TokenBatch];

/** The first of them has `SHORT` tokens and is filled up. */
export const padded: TokenBatch = {
  ids: full.ids!.map((id, i) => i >= SHORT && i < CONFIG.seq ? 0 : id),
  targets: full.targets!.map((id, i) => i >= SHORT && i < CONFIG.seq ? -1 : id),
};

async function lossesAndGradients(
  name: DeviceName,
  runs: readonly { model: Model; fields: Batch; weights: Map<string, Float32Array> }[],
): Promise<{ losses: number[]; gradients: Map<string, Float32Array> }> {
  const device = compilingOnce(await openDevice(name)), losses: number[] = [];
  let gradients = new Map<string, Float32Array>();
  try {
    for (const [m, { model, fields, weights }] of runs.entries()) {
      const stages: Stage[] = await openStages(device, compileModel(model, "cheap"), 1);
      stages[0]!.load({ weights, moments: new Map() });
      losses.push(...await forward(stages, m, fields));
      await backward(stages, m, "B", 0.25);
      const found = await gradientsOf(stages);
      const sum = (key: string, values: Float32Array) => {
        const wide = new Float32Array(gradients.get(key)?.length ?? values.length);
        return wide.map((_, i) => (gradients.get(key)?.[i] ?? 0) + (values[i] ?? 0));
      };
      gradients = new Map([...found].map(([key, values]) => [key, sum(key, values)]));
    }
  } finally {
    device.close();
  }
  return { losses, gradients };
}

/** Registers the tests of a device. */
export function testLengths(name: DeviceName, test: RegisterTest = Deno.test): void {
  test(`a padded sample has the loss and gradient of a short one on ${name}`, async () => {
    const model = gpt2(CONFIG, SAMPLES), one = gpt2(CONFIG, 1);
    const short = gpt2({ ...CONFIG, seq: SHORT }, 1);
    const weights = drawWeights(compileModel(model, "none"));
    const cut = new Map(weights).set(WPE, weights.get(WPE)!.slice(0, SHORT * CONFIG.hidden));
    const [first, second] = splitBatch(padded, 2) as [Batch, Batch];
    const head = {
      ids: first.ids!.subarray(0, SHORT),
      targets: first.targets!.subarray(0, SHORT),
    };
    const received = await lossesAndGradients(name, [{ model, fields: padded, weights }]);
    const expected = await lossesAndGradients(name, [
      { model: one, fields: second, weights },
      { model: short, fields: head, weights: cut },
    ]);
    const [secondLoss, firstLoss] = expected.losses as [number, number];
    for (const [i, wanted] of [firstLoss, secondLoss].entries()) {
      assert.ok(Math.abs(received.losses[i]! - wanted) < 1e-5 * wanted, `sample ${i}`);
    }
    for (const [key, wanted] of expected.gradients) {
      const values = received.gradients.get(key)!;
      const largest = wanted.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      const error = values.reduce((most, v, i) => Math.max(most, Math.abs(v - wanted[i]!)), 0);
      assert.ok(error <= 2e-5 * largest, `${key} differs by ${error} of ${largest}`);
    }
  });

  test(`where nothing is predicted on ${name}, loss and gradients are exactly zero`, async () => {
    const model = gpt2(CONFIG, SAMPLES), weights = drawWeights(compileModel(model, "none"));
    const fields = { ids: full.ids!, targets: full.targets!.map(() => -1) };
    const { losses, gradients } = await lossesAndGradients(name, [{ model, fields, weights }]);
    assert.ok(losses.every((loss) => loss === 0), `${losses}`);
    for (const [key, values] of gradients) assert.ok(values.every((value) => value === 0), key);
  });
}
