/** Models train as PyTorch trains them: a tied and clipped GPT-2, and models that PyTorch exported. */

import assert from "node:assert/strict";
import { InferenceSession } from "onnxruntime-web";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import {
  ADAMW_DEFAULTS,
  fromOnnx,
  type FromOnnxOptions,
  gpt2,
  onnxWithWeights,
  readTokens,
  tokenBatches,
} from "../../../kernels/mod.ts";
import {
  expectedOf,
  farthest,
  lossOf,
  ONNX_FIXTURES,
  onnxBatches,
  type OnnxFixture,
  onnxPath,
  outputsOf,
} from "../../onnx.ts";
import { assertNear as assertRatios } from "../pipeline/trained.ts";
import { eventsOf, trained } from "../runs.ts";

type Options = Partial<TrainOptions>;

const FIXTURE = new URL("../../fixtures/gpt2_tied/", import.meta.url);
const fileOf = (name: string) => decodeURIComponent(new URL(name, FIXTURE).pathname);

/** PyTorch's floats and the doubles that judge them. */
const { config, float32 } = JSON.parse(await Deno.readTextFile(fileOf("expected.json")));

/** The same steps with Troupe. */
async function tiedRun(options: Options) {
  const { seq, vocab, microBatch, microBatches, lr, weightDecay, clipNorm } = config;
  const tokens = await readTokens(fileOf("tokens.bin"));
  const cut = { seq, vocabularySize: vocab, microBatch, microBatches, steps: config.steps };
  return trained({
    model: gpt2({ ...config, tie: true }, microBatch),
    data: tokenBatches({ ...cut, tokens }),
    ...{ steps: config.steps, microBatches, learningRate: lr, clip: clipNorm },
    weights: fileOf("weights.safetensors"),
    optimizer: { ...ADAMW_DEFAULTS, weightDecay },
    ...{ device: "native", runtime: "local", ...options },
  });
}

/** Losses may drift, so one run takes all steps. */
const RUNS: readonly Options[] = [
  { schedule: "1f1b", workers: 4 },
  { schedule: "zb-v", workers: 2, device: "wasm", steps: 4 },
  { schedule: "chimera", workers: 4, steps: 4 },
];

for (const options of RUNS) {
  Deno.test(`a tied GPT-2 under ${JSON.stringify(options)} has PyTorch's losses within 1e-5 and its norms within 1e-4`, async () => {
    const { bits: { losses, norms }, end } = await tiedRun(options);
    const names = [...end.weights.keys()], { length } = losses;
    assert.equal(length, options.steps ?? config.steps);
    assert.ok(names.includes("transformer.wte.weight") && !names.includes("lm_head.weight"));
    assertRatios(losses, float32.losses.slice(0, length), 1e-5, "losses");
    assertRatios(norms, float32.gradNorms.slice(0, length), 1e-4, "norms");
  });
}

function assertNear(got: readonly number[], wanted: readonly number[], most: number): void {
  const distance = farthest(got, wanted);
  assert.ok(distance <= most, `${distance} off`);
}

// Loading the runtime opens ports that stay; no Deno worker starts in this program from then on.
Deno.test.beforeAll(async () => {
  await assert.rejects(InferenceSession.create(new Uint8Array()));
});

const DIMENSIONS: Readonly<Record<OnnxFixture, FromOnnxOptions["dimensions"]>> = {
  ...{ resnet: { batch: 4 }, resnet_fused: { batch: 4 }, bert: {} },
  ...{ gpt: { batch: 4, seq: 16 }, gpt_tied: { batch: 4, seq: 16 } },
};

/** Trains an exported model. */
async function onnxRun(name: OnnxFixture, options: Options) {
  const { steps, microBatches, adamw } = expectedOf(name).config;
  const bytes = await Deno.readFile(onnxPath(name)), dimensions = DIMENSIONS[name];
  const run = await trained({
    model: fromOnnx(bytes, { loss: "cross-entropy", dimensions }),
    ...{ data: onnxBatches(name), steps, microBatches, learningRate: adamw.lr },
    optimizer: { ...ADAMW_DEFAULTS, weightDecay: adamw.weightDecay },
    evaluation: { every: steps, batches: [onnxBatches(name).next().value!] },
    ...{ device: "native", runtime: "local", ...options },
  });
  return { ...run, file: onnxWithWeights(bytes, run.end.weights) };
}

/** Compares all steps with PyTorch's, and the written file with both; returns the losses. */
async function checkTrained(
  name: OnnxFixture,
  options: Options,
  optimizer: "adamw" | "sgd" = "adamw",
) {
  const { [optimizer]: expected } = expectedOf(name);
  const { bits: { losses }, events, file } = await onnxRun(name, options);
  assertNear(losses, expected.losses, 1e-5);
  const outputs = await outputsOf(name, file);
  assertNear(outputs, expected.outputs, 1e-5);
  const last = eventsOf(events, "evaluation").at(-1)!.loss;
  assertNear([lossOf(name, outputs)], [last], 1e-6);
  return losses;
}

for (const name of ONNX_FIXTURES) {
  Deno.test(`20 steps of ${name} are PyTorch's, as are the outputs of its file before and after; 4 workers have the bits of 2`, async () => {
    const outputs = await outputsOf(name, await Deno.readFile(onnxPath(name)));
    assertNear(outputs, expectedOf(name).outputs, 1e-5);
    const losses = await checkTrained(name, { workers: 2, schedule: "1f1b" });
    const { bits } = await onnxRun(name, { workers: 4, schedule: "1f1b", steps: 3 });
    assert.deepEqual(bits.losses, losses.slice(0, 3));
  });
}

Deno.test("20 steps of resnet are PyTorch's on two workers with WebAssembly", async () => {
  await checkTrained("resnet", { workers: 2, schedule: "message-driven", device: "wasm" });
});

Deno.test("20 steps of plain SGD of bert are PyTorch's", async () => {
  const optimizer = { kind: "sgd", momentum: 0, weightDecay: 0 } as const;
  const learningRate = expectedOf("bert").config.sgd.lr;
  await checkTrained("bert", { workers: 2, optimizer, learningRate }, "sgd");
});
