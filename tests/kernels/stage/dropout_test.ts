/** Dropout in a stage: which elements are left out, their gradients and the memory of their masks. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { activationBytes } from "../../../kernels/stage/memory.ts";
import {
  compileModel,
  gpt2,
  type Gpt2Config,
  gpt2Logits,
  type Layer,
  mlp,
  openPredictor,
  openReference,
} from "../../../kernels/mod.ts";
import { type DropoutKey, openMask } from "../../../kernels/layers/dropout.ts";
import {
  backward,
  compilingOnce,
  drawTokens,
  drawWeights,
  forward,
  gradientsOf,
  openStages,
} from "./stage_runs.ts";
import { assertRefused } from "../graph/refused.ts";

const KEY: DropoutKey = { seed: 7, step: 3, microBatch: 5 };
const CONFIG: Gpt2Config = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 32, dropout: 0.3 };

function maskOf(length: number, probability: number, layer: string, key: DropoutKey, from = 0) {
  const values = new Float32Array(length), shape = [from + length];
  openMask({ name: "mask.0", dtype: "f32", shape, probability }, layer, key)(values, from);
  return values;
}

Deno.test("a mask is the hash of its key and each place, at any beginning of a part of it", () => {
  const [word0, word1] = new Int32Array(
    createHash("sha256").update('[7,3,5,"a","mask.0"]').digest().buffer.slice(0, 8),
  );
  const expected = Float32Array.from({ length: 40_001 }, (_, place) => {
    let x = place ^ word0!;
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d) + word1!;
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    return (x ^ (x >>> 16)) >>> 1 < 0.3 * 2 ** 31 ? 0 : 1 / 0.7;
  });
  for (const [from, to] of [[0, 40_001], [0, 1], [3, 8], [16_383, 16_385], [17_001, 40_001]]) {
    assert.deepEqual(maskOf(to! - from!, 0.3, "a", KEY, from), expected.subarray(from, to));
  }
});

Deno.test("the halves of a micro-batch have the mask of the whole", () => {
  const whole = maskOf(64, 0.5, "a", KEY), halves = [0, 1] as const;
  const parts = halves.flatMap((half) => [...maskOf(32, 0.5, "a", { ...KEY, half })]);
  assert.deepEqual(parts, [...whole]);
});

Deno.test("the masks of a stage take the memory of those of one layer", () => {
  const bytes = (layers: number, dropout: number) => {
    const model = compileModel(gpt2({ ...CONFIG, layers, dropout }, 2), "cheap");
    return activationBytes(model, { backward: "whole" });
  };
  const rows = 2 * CONFIG.seq, { heads, hidden, seq } = CONFIG;
  const masks = 4 * (rows * hidden + 2 * heads * seq * seq);
  for (const layers of [1, 3]) {
    const [still, drawn] = [bytes(layers, 0), bytes(layers, 0.3)];
    assert.equal(drawn.shared - still.shared, masks);
    assert.equal(drawn.perMicroBatch, still.perMicroBatch);
  }
});

Deno.test("gradients through dropout are slopes of the loss with the same mask", async () => {
  const sizes = { inputs: 4, hidden: 8, layers: 2, classes: 3, dropout: 0.4 };
  const model = compileModel(mlp(sizes, 4), "none"), weights = drawWeights(model);
  const stages = await openStages(await openReference(), model, 1);
  const batch = {
    features: Float32Array.from({ length: 16 }, (_, i) => Math.sin(i + 1)),
    labels: Int32Array.of(0, 1, 2, 0),
  };
  const loss = async () => {
    const losses = await forward(stages, 0, batch, KEY);
    stages[0]!.drop(0);
    return losses.reduce((sum, one) => sum + one, 0);
  };
  await forward(stages, 0, batch, KEY);
  await backward(stages, 0, "B");
  const step = 1e-2;
  for (const [name, gradient] of await gradientsOf(stages)) {
    const own = weights.get(name)!;
    for (let i = 0; i < own.length; i += 3) {
      const at = async (offset: number) => {
        stages[0]!.write(name, own.with(i, own[i]! + offset));
        return await loss();
      };
      const slope = (await at(step) - await at(-step)) / (2 * step);
      assert.ok(Math.abs(slope - gradient[i]!) < 5e-3, `${name}[${i}]: ${slope}, ${gradient[i]}`);
    }
    stages[0]!.write(name, own);
  }
});

Deno.test("the masks of a micro-batch follow its key alone, and without a key no element is left out", async () => {
  const device = compilingOnce(await openReference()), [fields] = drawTokens(1, 16, CONFIG.vocab);
  const stagesOf = (config: Gpt2Config) =>
    openStages(device, compileModel(gpt2(config, 2), "none"), 1);
  const stages = await stagesOf(CONFIG), still = await stagesOf({ ...CONFIG, dropout: 0 });
  const losses = async (m: number, key?: DropoutKey) =>
    [...await forward(stages, m, fields!, key)].join();
  const first = await losses(0, KEY), plain = [...await forward(still, 0, fields!)].join();
  assert.equal(await losses(1), plain);
  assert.notEqual(await losses(2, { ...KEY, step: 4 }), first);
  assert.equal(await losses(3, KEY), first);
  stages[0]!.drop(3);
  // The memory of a micro-batch with a key is reused for a micro-batch without one.
  assert.equal(await losses(3), plain);
});

Deno.test("a share of 0 changes no model, and a prediction leaves no element out", async () => {
  const { dropout: _, ...never } = CONFIG;
  const [still, plain] = [{ ...CONFIG, dropout: 0 }, never].map((config) =>
    compileModel(gpt2(config, 2), "none")
  );
  assert.deepEqual(still!.programs, plain!.programs);
  const device = await openReference(), weights = drawWeights(plain!);
  const [tokens] = drawTokens(1, CONFIG.seq, CONFIG.vocab);
  const predictions = [CONFIG, never].map(async (config) =>
    (await openPredictor(device, gpt2Logits(config), weights))({ ids: tokens!.ids })
  );
  assert.deepEqual(await predictions[0], await predictions[1]);
});

Deno.test("a share of 1 is refused, and so are two layers of one name that would leave out the same", () => {
  const sizes = { inputs: 4, hidden: 8, layers: 2, classes: 3 };
  const drop: Layer = { name: "drop", build: (g, x) => g.dropout(x!, 0.1) };
  const first: Layer = { name: "first", build: (g) => g.batch("x", [2, 2]) };
  const layers = [first, drop, drop], model = { name: "twice", layers, predictions: 1 };
  return assertRefused("dropout", [
    () => gpt2({ ...CONFIG, dropout: 1 }, 2),
    () => mlp({ ...sizes, dropout: 1 }, 2),
    () => compileModel(model, "none", { endsWithLoss: false }),
  ]);
});
