/** Models that PyTorch exported train as PyTorch trains them, and their files run anywhere. */

import assert from "node:assert/strict";
import { InferenceSession } from "onnxruntime-web";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import {
  ADAMW_DEFAULTS,
  fromOnnx,
  type FromOnnxOptions,
  onnxWithWeights,
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

// Loading the runtime opens ports that stay.
Deno.test.beforeAll(async () => {
  await assert.rejects(InferenceSession.create(new Uint8Array()));
});

const DIMENSIONS: Readonly<Record<OnnxFixture, FromOnnxOptions["dimensions"]>> = {
  resnet: { batch: 4 },
  resnet_fused: { batch: 4 },
  bert: {},
  gpt: { batch: 4, seq: 16 },
  gpt_tied: { batch: 4, seq: 16 },
};

/** 20 steps of a model: its losses, the loss of the first micro-batch at the end, and its file. */
async function trained(name: OnnxFixture, options: Partial<TrainOptions>) {
  const { config } = expectedOf(name), { microBatches, steps, adamw } = config;
  const bytes = await Deno.readFile(onnxPath(name));
  const model = fromOnnx(bytes, { loss: "cross-entropy", dimensions: DIMENSIONS[name] });
  const losses: number[] = [];
  let last = NaN;
  for await (
    const event of train({
      model,
      data: onnxBatches(name),
      steps,
      microBatches,
      optimizer: { ...ADAMW_DEFAULTS, weightDecay: adamw.weightDecay },
      learningRate: adamw.lr,
      evaluation: { every: steps, batches: [onnxBatches(name).next().value!] },
      device: "native",
      runtime: "local",
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss);
    if (event.type === "evaluation") last = event.loss;
    if (event.type !== "end") continue;
    const { weights, weightsHash } = event;
    return { losses, last, weightsHash, file: onnxWithWeights(bytes, weights) };
  }
  return assert.fail("a run must end");
}

for (const name of ONNX_FIXTURES) {
  Deno.test(`the file of ${name} has PyTorch's outputs in onnxruntime-web before anything is trained`, async () => {
    const outputs = await outputsOf(name, await Deno.readFile(onnxPath(name)));
    assertNear("outputs", outputs, expectedOf(name).outputs, 1e-5);
  });

  Deno.test(`20 steps of ${name} are PyTorch's, with the same bits on 1, 2 and 4 workers, and so is what its file then says`, async () => {
    const hashes: string[] = [];
    for (const workers of [1, 2, 4]) {
      hashes.push(await checkTrained(name, { workers, schedule: "1f1b" }));
    }
    assert.deepEqual(hashes, hashes.map(() => hashes[0]));
  });
}

for (const [name, schedule] of [["gpt", "chimera"], ["resnet", "message-driven"]] as const) {
  Deno.test(`20 steps of ${name} are PyTorch's on two workers with WebAssembly, ${schedule}`, async () => {
    await checkTrained(name, { workers: 2, schedule, device: "wasm" });
  });
}

for (
  const [name, schedule, workers] of [
    ["bert", "zb-v", 2],
    ["gpt_tied", "hanayo", 2],
    ["gpt_tied", "chimera", 4],
  ] as const
) {
  Deno.test(`${name} has the bits of its serial run under ${schedule}, with copies of it too`, async () => {
    for (const replicas of [1, 2]) {
      const options = { workers, schedule, replicas, steps: 3, microBatches: 4 };
      const [one, other] = [
        await trained(name, { ...options, runtime: "serial" }),
        await trained(name, options),
      ];
      assert.equal(other.weightsHash, one.weightsHash);
      assert.deepEqual(other.losses, one.losses);
    }
  });
}

Deno.test("20 steps of plain SGD of bert are PyTorch's", async () => {
  const optimizer = { kind: "sgd", momentum: 0, weightDecay: 0 } as const;
  const { config } = expectedOf("bert");
  await checkTrained("bert", { workers: 2, optimizer, learningRate: config.sgd.lr }, "sgd");
});

/** Holds a run to PyTorch's, and what its file says to both; returns the hash of its weights. */
async function checkTrained(
  name: OnnxFixture,
  options: Partial<TrainOptions>,
  optimizer: "adamw" | "sgd" = "adamw",
): Promise<string> {
  const { [optimizer]: expected } = expectedOf(name);
  const { losses, last, weightsHash, file } = await trained(name, options);
  assertNear("losses", losses, expected.losses, 1e-5);
  const outputs = await outputsOf(name, file);
  assertNear("outputs", outputs, expected.outputs, 1e-5);
  assertNear("the loss of those outputs", [lossOf(name, outputs)], [last], 1e-6);
  return weightsHash;
}

function assertNear(
  what: string,
  got: readonly number[],
  wanted: readonly number[],
  tolerance: number,
): void {
  const distance = farthest(got, wanted);
  assert.ok(distance <= tolerance, `${what}: ${distance} off`);
}
