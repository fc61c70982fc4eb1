/** Several versions of a stage's weights: old ones stay while a micro-batch in flight needs them. */

import assert from "node:assert/strict";
import {
  compileModel,
  type Device,
  gpt2,
  type MessageArray,
  openDevice,
  openStage,
  planMemory,
  type Precision,
  type Stage,
  type StageOptions,
  type StageState,
} from "../../../kernels/mod.ts";
import { drawTokens, drawWeights } from "./stage_runs.ts";

const SIZES = { layers: 2, hidden: 16, heads: 2, seq: 4, vocab: 16 };
const TOKENS = drawTokens(4, 8, 16);
const OPTIONS = {
  optimizer: { kind: "sgd", momentum: 0.9, weightDecay: 0 },
  backward: "whole",
} as const;

const modelOf = (precision: Precision) => compileModel(gpt2(SIZES, 2), "none", { precision });

async function open(device: Device, options: Partial<StageOptions>, state?: StageState) {
  const model = modelOf(options.precision ?? "fp32");
  const stage = await openStage(device, model, { ...OPTIONS, ...options });
  stage.load(state ?? { weights: drawWeights(model), moments: new Map() });
  return stage;
}

/** The gradients that one micro-batch leaves. */
async function backward(stage: Stage, m: number): Promise<MessageArray> {
  stage.zeroGradients();
  await stage.backward(m, "B", undefined, 1 / 8);
  return await all(stage);
}

const all = (stage: Stage) => {
  const { offset, length } = stage.buckets.at(-1)!;
  return stage.readGradients(0, offset + length);
};

/** Those of a stage that has only these weights. */
async function expected(device: Device, options: Partial<StageOptions>, m: number, at: StageState) {
  const stage = await open(device, { ...options, versions: 1 }, at);
  await stage.forward(m, undefined, TOKENS[m]!);
  return await backward(stage, m);
}

const CASES: Partial<StageOptions>[] = [
  {},
  { offload: true },
  { precision: "fp16" },
  { precision: "fp16", offload: true },
  { recomputeInterval: 1 },
];

for (const options of CASES) {
  Deno.test(`a backward has the weights of its forward, whatever was updated since ${JSON.stringify(options)}`, async () => {
    const device = await openDevice("native");
    try {
      const stage = await open(device, { ...options, versions: 2 });
      const first = await stage.save();
      await stage.forward(0, undefined, TOKENS[0]!);
      await stage.forward(1, undefined, TOKENS[1]!);
      await backward(stage, 0);
      assert.equal(stage.weightVersions, 1);
      await stage.optimize(1, 0.1);
      assert.equal(stage.weightVersions, 2);
      const second = await stage.save();
      assert.notDeepEqual(second.weights, first.weights);
      await stage.forward(2, undefined, TOKENS[2]!);
      assert.deepEqual(await backward(stage, 1), await expected(device, options, 1, first));
      assert.equal(stage.weightVersions, 1);
      // On request, also a new micro-batch has the weights before the newest.
      await stage.forward(3, undefined, TOKENS[3]!, undefined, 1);
      assert.deepEqual(await backward(stage, 3), await expected(device, options, 3, first));
      assert.deepEqual(await backward(stage, 2), await expected(device, options, 2, second));
    } finally {
      device.close();
    }
  });
}

Deno.test("updates with versions have the bits of updates in place", async () => {
  const device = await openDevice("native");
  try {
    const stages = [await open(device, {}), await open(device, { versions: 3 })];
    for (let step = 1; step <= 5; step++) {
      const m = step % 4;
      for (const stage of stages) {
        await stage.forward(m, undefined, TOKENS[m]!);
        await backward(stage, m);
        await stage.optimize(step, 0.1);
      }
      const [plain, versioned] = await Promise.all(stages.map((stage) => stage.save()));
      assert.deepEqual(versioned, plain);
    }
  } finally {
    device.close();
  }
});

Deno.test("an update with all versions in use is refused, as are weights that are not kept", async () => {
  const device = await openDevice("reference");
  try {
    const stage = await open(device, { versions: 2 });
    await stage.forward(0, undefined, TOKENS[0]!);
    await stage.optimize(1, 0.1);
    await stage.forward(1, undefined, TOKENS[1]!);
    await assert.rejects(() => stage.optimize(2, 0.1), {
      name: "RangeError",
      message: "Cannot update weights: one of 2 versions must be free, received all in use",
    });
    await assert.rejects(() => stage.forward(2, undefined, TOKENS[2]!, undefined, 2), {
      name: "RangeError",
      message: "Cannot use old weights: they must be at most 1 updates old, received 2",
    });
  } finally {
    device.close();
  }
});

Deno.test("the newest weights are never written over, even where nobody uses them", async () => {
  const device = await openDevice("reference");
  try {
    const stage = await open(device, { versions: 2 });
    await stage.forward(0, undefined, TOKENS[0]!);
    await stage.optimize(1, 0.1);
    const newest = await stage.save();
    await assert.rejects(() => stage.optimize(2, 0.1), /one of 2 versions must be free/);
    assert.deepEqual(await stage.save(), newest);
    await backward(stage, 0);
    await stage.optimize(2, 0.1);
  } finally {
    device.close();
  }
});

Deno.test("the bytes of all versions are planned and counted", async () => {
  const device = await openDevice("native");
  try {
    const stage = await open(device, { versions: 3 });
    await stage.forward(0, undefined, TOKENS[0]!);
    const options = { ...OPTIONS, slots: 1 }, model = modelOf("fp32");
    assert.deepEqual(stage.memory, planMemory(model, { ...options, versions: 3 }));
    assert.equal(stage.memory.device.weights, 3 * planMemory(model, options).device.weights);
  } finally {
    device.close();
  }
});
