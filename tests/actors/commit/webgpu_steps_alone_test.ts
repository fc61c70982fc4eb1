/** Steps on the GPU: what they copy, and where they add. */

import assert from "node:assert/strict";
import { createParameters, gpt2 } from "../../../kernels/mod.ts";
import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { readFlat, writeFlat } from "../../../kernels/optimizer/flat_tensor.ts";
import { allocateSums, openGradientSums } from "../../../kernels/optimizer/gradient_sums.ts";
import { createSchedule } from "../../../schedules/mod.ts";
import { gpuTest } from "../../gpu.ts";
import { ownMemory } from "../../kernels/own_memory.ts";
import { drawTokens } from "../../kernels/stage/stage_runs.ts";
import { bytesOf, copiesOf, leftToRight } from "./all_reduce/gradients.ts";
import { assertCopied } from "./copied_bytes.ts";
import { stepByHand, type Steps } from "./steps_by_hand.ts";

gpuTest(
  "first, middle and last stages on webgpu copy what the formula says, without a view at an offset",
  async () => {
    const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 9 };
    const steps: Steps = {
      options: { model: gpt2(config, 2), replicas: 2, bucketSize: 37 },
      schedule: createSchedule("1f1b", { workers: 3, microBatches: 1 }),
      coarsening: 3,
      microBatches: drawTokens(2, 8, 9),
      steps: 2,
      openDevice: async () => ownMemory(await openWebgpu()),
    };
    const stepped = await stepByHand(steps);
    assertCopied(stepped, steps);
    for (const [name, weights] of stepped.results) {
      if (name.endsWith("copy 1")) {
        assert.deepEqual(weights, stepped.results.get(name.replace(/1$/, "0")), name);
      }
    }
  },
);

gpuTest("gradients are added on webgpu with the bits of sums on the host", async () => {
  const device = await openWebgpu(), length = 48;
  const store = createParameters(device, [{ name: "w", shape: [6, 8] }], { moments: 0 });
  const memory = allocateSums(device, store, { addends: 3, collects: true })!;
  const sums = openGradientSums(device, store, memory);
  const copies = copiesOf({ size: 3, length, dtype: "f32", seed: 1 });
  const expected = bytesOf(leftToRight(copies, "f32"));
  const found = async () => bytesOf(await readFlat(device, store.gradients, { offset: 0, length }));
  for (let own = 0; own < 3; own++) {
    writeFlat(device, store.gradients, 0, copies[own]!);
    await sums.add(0, copies.map((copy, rank) => rank === own ? undefined : copy));
    assert.deepEqual(await found(), expected, `own ${own}`);
  }
  for (const [rank, copy] of copies.entries()) {
    writeFlat(device, store.gradients, 0, copy);
    await sums.collect(rank, 3);
  }
  assert.deepEqual(await found(), expected);
  device.close();
});
