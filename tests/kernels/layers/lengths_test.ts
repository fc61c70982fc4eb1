/** Micro-batches of different lengths and sizes: targets of −1, and models for fewer samples. */

import assert from "node:assert/strict";
import {
  type Batch,
  compileModel,
  countTargets,
  type DeviceName,
  gpt2,
  mlp,
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
import { ISOLATE_DEVICES } from "../../devices.ts";

const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 32 };
const SHORT = 5, SAMPLES = 2;
const WPE = "transformer.wpe.weight";

/** One sample of `SHORT` tokens, one of all; where `isPadded`, the first is filled up to `seq`. */
const [full] = drawTokens(1, SAMPLES * CONFIG.seq, CONFIG.vocab) as [TokenBatch];
const padded: TokenBatch = {
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

for (const name of ISOLATE_DEVICES) {
  Deno.test(`a padded sample has the loss and gradient of a short one on ${name}`, async () => {
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

  Deno.test(`where nothing is predicted on ${name}, loss and gradients are exactly zero`, async () => {
    const model = gpt2(CONFIG, SAMPLES), weights = drawWeights(compileModel(model, "none"));
    const fields = { ids: full.ids!, targets: full.targets!.map(() => -1) };
    const { losses, gradients } = await lossesAndGradients(name, [{ model, fields, weights }]);
    assert.ok(losses.every((loss) => loss === 0), `${losses}`);
    for (const [key, values] of gradients) assert.ok(values.every((value) => value === 0), key);
  });
}

Deno.test("predictions are the targets that are not −1", () => {
  const { predictions } = gpt2(CONFIG, SAMPLES);
  assert.ok(typeof predictions === "function");
  assert.equal(predictions(full), SAMPLES * CONFIG.seq);
  assert.equal(predictions(padded), SHORT + CONFIG.seq);
  assert.throws(() => predictions({ ids: full.ids! }), {
    name: "TypeError",
    message:
      'Cannot count predictions: the micro-batch must have the field "targets", received [ids]',
  });
  assert.throws(() => countTargets({ labels: Int32Array.of(1, -100) }, "labels"), {
    name: "RangeError",
    message: /received -100 at position 1/,
  });
});

for (
  const model of [gpt2(CONFIG, 4), mlp({ inputs: 6, hidden: 8, layers: 2, classes: 3 }, 4)]
) {
  Deno.test(`${model.name} for half the samples has the same parameters`, () => {
    assert.equal(model.samples, 4);
    const half = model.withSamples!(2);
    assert.equal(half.samples, 2);
    const [whole, halved] = [model, half].map((one) => compileModel(one, "none"));
    assert.deepEqual(halved!.parameters, whole!.parameters);
    const samplesOf = (program: typeof whole) => program!.programs.at(-1)!.output.shape;
    assert.deepEqual([samplesOf(whole), samplesOf(halved)], [[4], [2]]);
  });
}

Deno.test("a micro-batch is split into views of its samples, or refused", () => {
  const parts = splitBatch(full, SAMPLES);
  assert.deepEqual(parts[1]!.ids, full.ids!.slice(CONFIG.seq));
  assert.equal(parts[1]!.ids!.buffer, full.ids!.buffer);
  assert.throws(() => splitBatch(full, 3), {
    name: "RangeError",
    message:
      'Cannot split the micro-batch: the field "ids" must be divisible by 3, received 16 elements',
  });
});
