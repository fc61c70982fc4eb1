/**
 * The pipeline on the GPU: whatever the schedule and its options, losses, norms and weights have the
 * bits of the serial run on the same adapter; a step copies what the formula says, and adds there; and
 * runs started on other devices can be resumed.
 */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { inFolder } from "../../in_folder.ts";
import { copiedInStep } from "../gradients/own_devices.ts";
import { batchesOf, outcome, type Sizes } from "../runs.ts";
import { assertNear, DELAYS, openOracle, type Options, trained } from "./trained.ts";

keepGpuOpen();

/** Few and small shapes: most of the time is compiling shaders. */
const SIZES: Sizes = {
  ...{ layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 32 },
  ...{ microBatch: 2, microBatches: 4, steps: 2 },
};
const HELD = batchesOf({ ...SIZES, steps: 1 }, 2);

/** Runs with equal bits: the options of the serial run, and the additional options of the others. */
const CASES: Record<string, readonly [Options, ...Options[]]> = {
  "one copy, evaluated": [
    { evaluation: { every: 1, batches: HELD, atStart: true } },
    { schedule: "hanayo", workers: 2, recompute: "full", recomputeInterval: 1 },
    { schedule: "message-driven", workers: 3, offload: true, bucketSize: 500, link: DELAYS },
  ],
  "four tied copies, clipped": [
    {
      ...{ schedule: "chimera", workers: 2, replicas: 2, clip: 0.1 },
      model: gpt2({ ...SIZES, tie: true }, SIZES.microBatch),
    },
    { sync: "eager-opt", bucketSize: 300, coarsening: 3, link: DELAYS },
  ],
  "dropout": [
    { model: gpt2({ ...SIZES, dropout: 0.2 }, SIZES.microBatch) },
    { schedule: "zb-v", workers: 2, recomputeInterval: 1, link: DELAYS },
  ],
  "slices": [{ schedule: "seq1f1b", workers: 2, steps: 1 }, { link: DELAYS }],
  "without flushes": [{ schedule: "pipedream-2bw", workers: 2 }, { link: DELAYS }],
};

const oracle = openOracle(SIZES);

for (const [name, [shared, ...others]] of Object.entries(CASES)) {
  for (const how of others) {
    gpuTest(`${name} on webgpu: ${JSON.stringify(how)} has the serial bits`, async () => {
      await oracle(name, { ...shared, device: "webgpu" }, how);
    });
  }
}

const throughDevices = async (directory: string) => {
  const numbers: number[] = [], checkpoint = { directory, config: {} };
  for (const [i, device] of (["native", "webgpu", "native"] as const).entries()) {
    const resume = await readCheckpoint(directory), data = batchesOf(SIZES, 12);
    const { bits } = await trained(SIZES, {
      ...{ steps: i + 1, data, device, checkpoint, workers: 2, schedule: "1f1b", runtime: "local" },
      ...resume && { resume },
    });
    numbers.push(...bits.numbers.flat());
  }
  const native = await trained(SIZES, { runtime: "serial", steps: 3 });
  assertNear(numbers, native.bits.numbers.flat(), 1e-5, "numbers");
};

gpuTest("a checkpoint goes from native to webgpu and back", () => inFolder(throughDevices));

gpuTest("stages on webgpu copy only their messages, without a view at an offset", async () => {
  const sizes = { ...SIZES, hidden: 8, seq: 4, vocab: 9, microBatches: 1 };
  const how = { schedule: "1f1b", workers: 3, replicas: 2, bucketSize: 37, coarsening: 3 } as const;
  const place = { device: "webgpu", runtime: "local", retries: 0 } as const;
  const copied = await copiedInStep("webgpu", async (see) => {
    await using system = createSystem();
    await outcome(sizes, { ...how, ...place, system }, see);
  });
  assert.deepEqual(copied, [[4224, 4192], [5824, 5832], [1544, 1460]]);
});
