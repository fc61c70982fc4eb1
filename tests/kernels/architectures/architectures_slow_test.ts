/** Llama, T5, U-Net and residual networks, against PyTorch. */

import assert from "node:assert/strict";
import {
  compileModel,
  llama,
  type LlamaConfig,
  llamaLogits,
  openPredictor,
  openReference,
  readTokens,
  resnet,
  t5,
  type T5Config,
  t5Logits,
  tokenBatches,
  unet,
} from "../../../kernels/mod.ts";
import { t5Bucket } from "../../../kernels/layers/t5.ts";
import { modelFields } from "../../../kernels/layers/layer.ts";
import { t5Ties } from "../../../kernels/layers/t5.ts";
import { assertRefused } from "../graph/refused.ts";
import { readFloats, readJson } from "../stage/pytorch.ts";
import { pictureFixture, SIZES as PICTURES } from "./pictures.ts";
import { readT5 } from "./t5_fixture.ts";
import { DEVICES, inSteps, testAgainstPytorch, testT5Gradients } from "./trains_as_pytorch.ts";

/** The sizes of the fixture's `config.json`. */
const OWN = { keyValueHeads: 2, intermediate: 40, ropeTheta: 5000, normEpsilon: 1e-5 };
const LLAMA: LlamaConfig = { layers: 3, hidden: 32, heads: 4, seq: 16, vocab: 96, ...OWN };

const tokensOfFixture = () =>
  readTokens(new URL("../../fixtures/llama/tokens.bin", import.meta.url).pathname);

testAgainstPytorch("a Llama with grouped queries", async () => {
  const { config, float32 } = await readJson("llama/expected.json");
  const { microBatch, microBatches, steps, lr } = config, { seq, vocab } = LLAMA;
  const options = { seq, microBatch, microBatches, steps, vocabularySize: vocab };
  const batches = [...tokenBatches({ ...options, tokens: await tokensOfFixture() })];
  return {
    model: llama(LLAMA, microBatch),
    weights: await readFloats("llama/model.safetensors"),
    gradients: await readFloats("llama/gradients.safetensors"),
    losses: float32,
    steps: inSteps(batches, steps, microBatches),
    learningRate: lr,
  };
});

testAgainstPytorch("a residual network", () => pictureFixture("resnet"));

testAgainstPytorch("a U-Net", () => pictureFixture("unet"));

for (const device of DEVICES) testT5Gradients(device);

Deno.test("a Llama has PyTorch's logits", async () => {
  const { logits } = await readJson("llama/expected.json"), device = await openReference();
  const weights = await readFloats("llama/model.safetensors");
  const predict = await openPredictor(device, llamaLogits(LLAMA, 1), weights);
  const received = await predict({ ids: Int32Array.from((await tokensOfFixture()).slice(0, 16)) });
  device.close();
  const worst = logits.flat().map((one: number, i: number) => Math.abs(one - received[i]!));
  assert.ok(Math.max(...worst) < 2e-5, `${Math.max(...worst)}`);
});

Deno.test("a Llama whose head is tied has no parameter for it", () => {
  const namesOf = (config: LlamaConfig) =>
    compileModel(llama(config, 1), "none").parameters.map(({ name }) => name);
  const names = namesOf(LLAMA).filter((name) => name !== "lm_head.weight");
  assert.deepEqual(namesOf({ ...LLAMA, tie: true }), names);
});

Deno.test("equal layers of a T5 share a program, and only first blocks have a table of distances", () => {
  const config = { layers: 6, hidden: 16, heads: 2, seq: 8, vocab: 16 };
  const { layers, programs, parameters } = compileModel(t5(config, 1), "none");
  assert.equal(layers.length, 4 + 6 * 5);
  // The cross attention whose backward comes first writes what the others add to; so with positions.
  assert.equal(programs.length, 14);
  const tables = parameters.filter(({ name }) => name.includes("relative_attention_bias"));
  assert.deepEqual(tables.map(({ name }) => name), [
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
  ]);
});

Deno.test("distances are counted in the buckets of T5", () => {
  /** The first distance of each bucket, as PyTorch computes them. */
  const starts = (hasLater: boolean, sign: number) => {
    const buckets = Array.from({ length: 301 }, (_, i) => t5Bucket(sign * i, hasLater, 32, 128));
    return buckets.flatMap((bucket, i) => bucket === buckets[i - 1] ? [] : [i]);
  };
  const near = (count: number) => [...Array(count).keys()];
  const far = [12, 16, 23, 32, 46, 64, 91];
  assert.deepEqual(starts(true, -1), [...near(9), ...far]);
  assert.deepEqual(starts(true, 1), [...near(9), ...far]);
  assert.equal(t5Bucket(300, true, 32, 128), 31);
  const causal = [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113];
  assert.deepEqual(starts(false, -1), [...near(17), ...causal]);
  assert.deepEqual(starts(false, 1), [0]);
});

/** Logits of one sample. */
async function logitsOf(config: T5Config, ids: number[], targets: number[]) {
  const { weights } = await readT5("v1_0"), device = await openReference();
  const sizes = { ...config, seq: ids.length, targetSeq: targets.length };
  const predict = await openPredictor(device, t5Logits(sizes, 1), weights, t5Ties(config));
  const logits = await predict({ ids: Int32Array.from(ids), targets: Int32Array.from(targets) });
  device.close();
  return Array.from(targets, (_, i) => logits.slice(i * config.vocab, (i + 1) * config.vocab));
}

Deno.test("no position attends to padding, and no output depends on a later one", async () => {
  const { config } = await readT5("v1_0"), ids = [5, 9, 30, 2, 1], targets = [4, 17, 3, 22];
  const whole = await logitsOf(config, ids, targets);
  assert.deepEqual(await logitsOf(config, [...ids, 0, 0, 0], targets), whole);
  assert.notDeepEqual(await logitsOf(config, [...ids, 3], targets), whole);
  const other = await logitsOf(config, ids, [4, 17, 8, -1]);
  assert.deepEqual(other.slice(0, 3), whole.slice(0, 3));
  assert.notDeepEqual(other[3], whole[3]);
});

Deno.test("a U-Net returns pictures of the size of its input, for any height and width", () => {
  for (const [height, width] of [[28, 28], [9, 16], [5, 31]] as const) {
    const model = unet({ height, width, channels: 3, layers: 3, hidden: 8 }, 2);
    const [features, targets] = modelFields(model);
    assert.deepEqual(targets!.shape, features!.shape);
  }
});

const T5 = { layers: 1, hidden: 24, heads: 3, seq: 8, vocab: 16 };

const BUILD: Readonly<Record<string, (change: object) => unknown>> = {
  Llama: (change) => llama({ ...LLAMA, ...change }, 1),
  ResNet: (change) => resnet({ ...PICTURES, ...change }, 2),
  "U-Net": (change) => unet({ ...PICTURES, ...change }, 2),
  T5: (change) => t5({ ...T5, ...change }, 1),
};

/** Sizes of which none can be built. */
const REFUSED: Readonly<Record<string, readonly object[]>> = {
  Llama: [
    ...[{ keyValueHeads: 3 }, { hidden: 36 }, { intermediate: 0 }, { ropeTheta: 0 }],
    ...[{ normEpsilon: NaN }, { layers: 2000 }],
  ],
  ResNet: [{ layers: 0 }, { layers: 5 }, { height: 4 }, { hidden: 18 }, { classes: 0 }],
  "U-Net": [{ layers: 5 }, { hidden: 6 }, { width: 2.5 }],
  T5: [{ heads: 5 }, { targetSeq: 0 }, { buckets: 6 }, { maxDistance: 16 }, { layers: 2000 }],
};

Deno.test("invalid sizes of networks are refused", () =>
  assertRefused(
    "architectures",
    Object.entries(REFUSED).flatMap(([what, changes]) =>
      changes.map((change) => [{ [what]: change }, () => BUILD[what]!(change)] as const)
    ),
  ));
