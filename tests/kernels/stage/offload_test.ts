/** Offload: master weights and moments rest on the host and visit the device in buckets. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  gpt2,
  openDevice,
  openReference,
  type OptimizerOptions,
  type Precision,
  PRECISIONS,
  type StageOptions,
} from "../../../kernels/mod.ts";
import { assertSameBits, compilingOnce, drawTokens, openStages, train } from "./stage_runs.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";

const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 32 };
const STEPS = 3;
const OPTIMIZERS: readonly OptimizerOptions[] = [
  ADAMW_DEFAULTS,
  { kind: "sgd", momentum: 0.9, weightDecay: 0.1 },
];

/** Losses, gradients, weights and moments of some steps, from and to a saved state. */
async function trained(device: Device, precision: Precision, options: Partial<StageOptions>) {
  const model = compileModel(gpt2(CONFIG, 2), "none", { precision });
  const results = new Map<string, Float32Array>();
  let [stage] = await openStages(device, model, 1, options);
  for (let step = 1; step <= STEPS; step++) {
    stage!.zeroGradients();
    const batches = drawTokens(2, 2 * CONFIG.seq, CONFIG.vocab);
    for (const [key, values] of await train([stage!], batches, "whole")) {
      results.set(`${step} ${key}`, values);
    }
    await stage!.optimize(step, 0.01, 0.5);
    if (step > 1) continue;
    const state = await stage!.save();
    [stage] = await openStages(device, model, 1, options);
    stage!.load(state);
  }
  const { weights, moments } = await stage!.save();
  return new Map([...results, ...weights, ...moments]);
}

for (const name of ISOLATE_DEVICES) {
  for (const precision of PRECISIONS) {
    Deno.test(`an offloaded ${precision} stage on ${name} has the bits of one that is not`, async () => {
      const device = compilingOnce(await openDevice(name));
      try {
        for (const optimizer of name === "reference" ? OPTIMIZERS.slice(0, 1) : OPTIMIZERS) {
          const expected = await trained(device, precision, { optimizer });
          // 1000 is no divisor of the stage: its last buckets are shorter than the others.
          for (const options of [{ offload: true, bucketSize: 1000 }, { offload: true }]) {
            const received = await trained(device, precision, { ...options, optimizer });
            assertSameBits(received, expected, `${optimizer.kind}, ${JSON.stringify(options)}`);
          }
        }
      } finally {
        device.close();
      }
    });
  }
}

Deno.test("buckets of an offloaded stage can be stepped in any order", async () => {
  const device = await openReference();
  const model = compileModel(gpt2(CONFIG, 2), "none");
  const options = { offload: true, bucketSize: 512 };
  const [forwards, backwards] = await Promise.all(
    [0, 1].map(async (turned) => {
      const [stage] = await openStages(device, model, 1, options);
      await train([stage!], drawTokens(1, 2 * CONFIG.seq, CONFIG.vocab), "whole");
      stage!.beginStep(1, 0.01, 1);
      const order = [...stage!.buckets.keys()];
      for (const bucket of turned ? order.reverse() : order) await stage!.stepBucket(bucket);
      return new Map((await stage!.save()).weights);
    }),
  );
  assertSameBits(backwards!, forwards!, "weights");
  device.close();
});

Deno.test("a moment of another length is refused by an offloaded stage", async () => {
  const device = await openReference();
  const model = compileModel(gpt2(CONFIG, 2), "none");
  const [stage] = await openStages(device, model, 1, { offload: true });
  const { weights } = await stage!.save();
  const moments = new Map([["lm_head.weight.exp_avg", new Float32Array(3)]]);
  assert.throws(() => stage!.load({ weights, moments }), {
    name: "RangeError",
    message: /must have 512 elements, received 3/,
  });
  device.close();
});
