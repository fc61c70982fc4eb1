/** Offload: master weights and moments rest on the host and visit the device in buckets. */

import assert from "node:assert/strict";
import { compileModel, gpt2, openReference, PRECISIONS } from "../../../kernels/mod.ts";
import { assertSameBits, drawTokens, openStages, train } from "./stage_runs.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { CONFIG, testOffload } from "./offload.ts";

for (const name of ISOLATE_DEVICES) {
  for (const precision of PRECISIONS) testOffload(name, precision);
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
