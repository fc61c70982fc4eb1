/** The memory of a stage: planned, counted, and what the formulas say. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  checkBucketSize,
  compileModel,
  cutIntoStages,
  type Device,
  type DeviceBytes,
  flatLength,
  gpt2,
  openDevice,
  openReference,
  openStage,
  type OptimizerOptions,
  planMemory,
  type Precision,
  PRECISIONS,
  RECOMPUTE_POLICIES,
  type StageOptions,
} from "../../../kernels/mod.ts";
import { ownMemory } from "../own_memory.ts";
import { assertPlanned, COUNTED } from "./planned_memory.ts";
import { openStages } from "./stage_runs.ts";

const CONFIG = COUNTED;
const SGD: OptimizerOptions = { kind: "sgd", momentum: 0.9, weightDecay: 0 };

const compile = (precision: Precision, frozen?: (name: string) => boolean) =>
  compileModel(gpt2(CONFIG, 2), "cheap", { precision, frozen });

const WAYS: readonly Partial<StageOptions>[] = [
  {},
  { bucketSize: 1000 },
  { offload: true },
  { offload: true, bucketSize: 1000 },
  { backward: "split", recomputeInterval: 2 },
  { backward: "split", offload: true },
];

/** Where views are not free, gradients of copies are added on the device. */
const ADDING: readonly Partial<StageOptions>[] = [
  { addends: 2 },
  { addends: 3 },
  { addends: 2, collects: true, offload: true },
];

for (const precision of PRECISIONS) {
  for (const optimizer of [ADAMW_DEFAULTS, SGD]) {
    for (const isOwn of [false, true]) {
      const where = isOwn ? " on a device with memory of its own" : "";
      const name = `every byte of ${precision} stages with ${optimizer.kind} is planned${where}`;
      Deno.test(name, async () => {
        for (const [i, way] of [...WAYS, ...isOwn ? ADDING : []].entries()) {
          const reference = await openReference();
          const device = isOwn ? ownMemory(reference) : reference;
          const frozen = (name: string) => i % 2 === 1 && name.includes("h.0.");
          const options = { optimizer, ...way };
          await assertPlanned(device, compile(precision, frozen), options, JSON.stringify(way));
          device.close();
        }
      });
    }
  }
}

/** Bytes of parameters and optimizer for each trained number, and for each element of a bucket. */
const FORMULAS = {
  "fp32 adamw": [16, 0],
  "fp32 adamw offloaded": [8, 8],
  "fp16 adamw": [16, 4],
  "fp16 adamw offloaded": [4, 16],
  "fp32 sgd": [12, 0],
  "fp32 sgd offloaded": [8, 4],
  "fp16 sgd": [12, 4],
  "fp16 sgd offloaded": [4, 12],
} as const;

for (const [name, [each, ofBucket]] of Object.entries(FORMULAS)) {
  Deno.test(`${name} takes ${each}φ + ${ofBucket}·bucket bytes on the device within 5 %`, async () => {
    const device = await openDevice("wasm"), bucketSize = 2048;
    const model = compile(name.startsWith("fp16") ? "fp16" : "fp32");
    const [stage] = await openStages(device, model, 1, {
      optimizer: name.includes("adamw") ? ADAMW_DEFAULTS : SGD,
      offload: name.endsWith("offloaded"),
      bucketSize,
    });
    const held = device.allocatedBytes - stage!.memory.device.activations;
    const trained = model.parameters.reduce(
      (sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1),
      0,
    );
    const expected = each * trained + ofBucket * bucketSize;
    assert.ok(Math.abs(held / expected - 1) < 0.05, `${held} bytes, not ${expected}`);
    // All but scalars is exactly the formula of the flat arrays, which pad parameters to 64 bytes.
    const exact = each * flatLength(model.parameters) + ofBucket * bucketSize;
    assert.equal(held - stage!.memory.device.other, exact);
    device.close();
  });
}

Deno.test("what is offloaded is counted on the host", async () => {
  const device = await openReference(),
    model = compile("fp16"),
    length = flatLength(model.parameters);
  const [stage] = await openStages(device, model, 1, { offload: true });
  assert.deepEqual(stage!.memory.host, { master: 4 * length, moments: 8 * length });
  const [resident] = await openStages(device, model, 1);
  assert.deepEqual(resident!.memory.host, { master: 0, moments: 0 });
  const [frozen] = await openStages(
    device,
    compile("fp16", (name) => name === "lm_head.weight"),
    1,
  );
  assert.deepEqual(frozen!.memory.host, { master: 4 * 64 * 32, moments: 0 });
  assert.equal(frozen!.memory.device.weights, 2 * length);
  device.close();
});

Deno.test("FP16 halves the bytes of activations and messages, but for what stays FP32", () => {
  for (const policy of RECOMPUTE_POLICIES) {
    const plan = (precision: Precision): DeviceBytes => {
      const model = compileModel(gpt2(CONFIG, 2), policy, { precision });
      return planMemory(model, { optimizer: SGD, backward: "whole", slots: 4 }).device;
    };
    const half = plan("fp16"), whole = plan("fp32");
    assert.equal(half.weights, whole.weights / 2);
    const share = half.activations / whole.activations;
    assert.ok(share > 0.5 && share < 0.53, `${policy}: ${share}`);
  }
});

Deno.test("a plan for a model of billions of numbers takes no memory", () => {
  const config = { layers: 1, hidden: 32_768, heads: 1, seq: 1, vocab: 2 };
  const model = compileModel(gpt2(config, 1), "full", { precision: "fp16" });
  const plan = planMemory(model, { optimizer: SGD, backward: "whole", offload: true, slots: 1 });
  assert.ok(plan.host.master > 4e10);
});

Deno.test("a bucket larger than the stage is refused where a user asked for it", async () => {
  const device: Device = await openReference();
  const [first, last] = cutIntoStages(compile("fp32"), 6).flatMap((stage, i) =>
    i % 5 ? [] : [stage]
  );
  const options = { optimizer: SGD, backward: "whole" } as const;
  const elements = flatLength([{ shape: [64, 32] }, { shape: [8, 32] }]);
  const stage = await openStage(device, first!, { ...options, bucketSize: elements });
  assert.deepEqual(stage.buckets, [{ offset: 0, length: elements, isDecayed: true }]);
  await assert.rejects(openStage(device, first!, { ...options, bucketSize: elements + 1 }), {
    name: "RangeError",
    message:
      `Cannot open stage: bucketSize must be at most ${elements}, the elements of the stage, received ${
        elements + 1
      }`,
  });
  assert.throws(() => checkBucketSize(last!, 1e6), RangeError);
  for (const bucketSize of [0, 1.5, -1, NaN]) {
    assert.throws(
      () => planMemory(first!, { ...options, bucketSize, slots: 1 }),
      /must be a positive integer/,
    );
  }
  // Nothing is stepped in a stage that is not trained, so any size is good.
  const [frozen] = cutIntoStages(compile("fp32", () => true), 6);
  await openStage(device, frozen!, { ...options, bucketSize: 1e6 });
  device.close();
});
