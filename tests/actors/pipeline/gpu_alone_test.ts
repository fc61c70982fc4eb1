/**
 * The pipeline on the GPU: whatever the schedule and its options, losses, norms and weights have the
 * bits of the serial run on the same adapter; a step copies what the formula says, and adds there; and
 * what other devices have begun goes on.
 */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/mod.ts";
import { createParameters, generate, gpt2, openDevice } from "../../../kernels/mod.ts";
import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { readFlat, writeFlat } from "../../../kernels/optimizer/flat_tensor.ts";
import { allocateSums, openGradientSums } from "../../../kernels/optimizer/gradient_sums.ts";
import { createSchedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { atDepth } from "../../depth.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { inFolder } from "../../in_folder.ts";
import { ownMemory } from "../../kernels/own_memory.ts";
import { drawTokens } from "../../kernels/stage/stage_runs.ts";
import { bytesOf, copiesOf, leftToRight } from "../commit/all_reduce/gradients.ts";
import { assertCopied, stepByHand, type Steps } from "../commit/steps_by_hand.ts";
import { batchesOf, type Sizes } from "../runs.ts";
import {
  assertNear,
  CUTS,
  DELAYS,
  openOracle,
  type Options,
  scheduleOf,
  trained,
  VARIANTS,
} from "./trained.ts";

keepGpuOpen();

/** Few and small shapes: most of the time is compiling shaders. */
const SIZES: Sizes = {
  ...{ layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 32 },
  ...{ microBatch: 2, microBatches: 4, steps: 2 },
};
const HELD = batchesOf({ ...SIZES, steps: 1 }, 2);

/** Two copies of tied weights whose gradients are clipped. */
const COPIES: Options = {
  schedule: "chimera",
  workers: 2,
  replicas: 2,
  clip: 0.1,
  model: gpt2({ ...SIZES, tie: true }, SIZES.microBatch),
};

/** Runs of equal bits: the options of the serial one, and what the others add. */
const CASES: Record<string, readonly [Options, ...Options[]]> = {
  "one copy": [
    { evaluation: { every: 1, batches: HELD, atStart: true } },
    ...atDepth<Options[]>([], [{ schedule: "1f1b", workers: 2 }]),
    { schedule: "zb-v", workers: 2, link: DELAYS },
    { schedule: "hanayo", workers: 2, recompute: "full", recomputeInterval: 1 },
    { schedule: "message-driven", workers: 3, offload: true, bucketSize: 500 },
  ],
  "four tied copies, clipped": [
    COPIES,
    ...atDepth<Options[]>([], [{ sync: "end", bucketSize: 1000 }]),
    { sync: "eager-opt", bucketSize: 300, coarsening: 3, link: DELAYS },
  ],
  "dropout": [
    { model: gpt2({ ...SIZES, dropout: 0.2 }, SIZES.microBatch) },
    { schedule: "zb-v", workers: 2, recomputeInterval: 1, link: DELAYS },
  ],
  "backwards in halves": [
    { schedule: "chimera", workers: 2, scheduleOptions: { scale: "halving" } },
    { sync: "eager" },
  ],
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
  const { weights } = (await readCheckpoint(directory))!.state, texts = [];
  for (const name of ["native", "webgpu"]) {
    const device = await openDevice(name);
    const options = { config: SIZES, weights, prompt: [3, 5], tokens: 6, temperature: 0 };
    texts.push(await Array.fromAsync(generate(device, options)));
    device.close();
  }
  assert.deepEqual(texts[1], texts[0]);
};

gpuTest(
  "a checkpoint goes from native to webgpu and back, and webgpu generates from it",
  () => inFolder(throughDevices),
);

/** The order of actions is no matter of the device: one schedule of a kind, and all in deep. */
const SCHEDULES = atDepth(
  ["1f1b", "seq1f1b", "pipedream-2bw", "message-driven", "zb-v"],
  scheduleDefinitions.map(({ name }) => name),
);

for (const [i, schedule] of SCHEDULES.entries()) {
  const isFlushed = !schedule.startsWith("pipedream"), replicas = isFlushed ? 2 : 1;
  for (const scheduleOptions of VARIANTS[schedule] ?? [{}]) {
    const what = `${schedule} ${JSON.stringify(scheduleOptions)} in ${replicas} replicas`;
    gpuTest(`${what} on webgpu has the serial bits, whatever the cuts and delays`, async () => {
      const shared = { device: "webgpu", workers: 2, steps: isFlushed ? 1 : 2 } as const;
      const options: Options = { ...shared, schedule, scheduleOptions, replicas };
      const { grouping } = scheduleOf(options, SIZES.microBatches);
      await oracle(grouping, options, { ...isFlushed && CUTS[i % 3], link: DELAYS });
    });
  }
}

// Each process compiles all shaders anew.
for (const how of atDepth<Options[]>([], [{ runtime: "workers", sync: "eager" }])) {
  gpuTest("copies in processes have the bits of the serial run on webgpu", async () => {
    await oracle("processes", { device: "webgpu", workers: 2, schedule: "chimera" }, how);
  });
}

gpuTest("stages on webgpu copy what the formula says, without a view at an offset", async () => {
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
    if (!name.endsWith("copy 1")) continue;
    assert.deepEqual(weights, stepped.results.get(name.replace(/1$/, "0")), name);
  }
});

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
