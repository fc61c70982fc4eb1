/**
 * The pipeline on the GPU: whatever the schedule and its options, losses, norms and weights have the
 * bits of the serial run on the same adapter; a step copies what the formula says, and adds there; and
 * what other devices have begun goes on.
 */

import assert from "node:assert/strict";
import { readCheckpoint, type SyncStrategy } from "../../../actors/mod.ts";
import {
  type Batch,
  createParameters,
  generate,
  gpt2,
  mlp,
  openDevice,
  substream,
} from "../../../kernels/mod.ts";
import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { readFlat, writeFlat } from "../../../kernels/optimizer/flat_tensor.ts";
import { allocateSums, openGradientSums } from "../../../kernels/optimizer/gradient_sums.ts";
import {
  createSchedule,
  scheduleDefinitions,
  type ScheduleOptions,
} from "../../../schedules/mod.ts";
import { atDepth } from "../../depth.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { inFolder } from "../../in_folder.ts";
import { ownMemory } from "../../kernels/own_memory.ts";
import { drawTokens } from "../../kernels/stage/stage_runs.ts";
import { bytesOf, copiesOf, leftToRight } from "../commit/all_reduce/gradients.ts";
import { assertCopied, stepByHand, type Steps } from "../commit/steps_by_hand.ts";
import { batchesOf, type Sizes, SMALL } from "../runs.ts";
import { assertNear, DELAYS, openOracle, type Options, scheduleOf, trained } from "./trained.ts";

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

/** Trains up to a step and leaves a checkpoint; goes on from the one that it finds. */
async function until(steps: number, directory: string, options: Options) {
  const resume = await readCheckpoint(directory), checkpoint = { directory, config: {} };
  return await trained(SIZES, {
    ...{ steps, checkpoint, workers: 2, runtime: "local", data: batchesOf(SIZES, 24) },
    ...resume && { resume },
    ...options,
  });
}

gpuTest(
  "a run on webgpu that goes on from its checkpoint has the bits of one in one piece",
  () =>
    inFolder(async (folder) => {
      const chimera = { schedule: "chimera", device: "webgpu", workers: 2 } as const;
      const whole = await trained(SIZES, { ...chimera, runtime: "serial" });
      const first = await until(1, folder, chimera), second = await until(2, folder, chimera);
      const numbers = [...first.bits.numbers, ...second.bits.numbers];
      assert.deepEqual({ numbers, hash: second.bits.hash }, whole.bits);
    }),
);

gpuTest(
  "a checkpoint goes from native to webgpu and back, and webgpu generates from it",
  () =>
    inFolder(async (folder) => {
      const numbers: number[] = [];
      for (const [i, device] of (["native", "webgpu", "native"] as const).entries()) {
        const { bits } = await until(i + 1, folder, { device, schedule: "1f1b" });
        numbers.push(...bits.numbers.flat());
      }
      const native = await trained(SIZES, { runtime: "serial", steps: 3 });
      assertNear(numbers, native.bits.numbers.flat(), 1e-5, "numbers");
      const { weights } = (await readCheckpoint(folder))!.state, texts = [];
      for (const name of ["native", "webgpu"]) {
        const device = await openDevice(name);
        const options = { config: SIZES, weights, prompt: [3, 5], tokens: 6, temperature: 0 };
        texts.push(await Array.fromAsync(generate(device, options)));
        device.close();
      }
      assert.deepEqual(texts[1], texts[0]);
    }),
);

/** Four layers, enough for the stages of every schedule on two workers, and cheap. */
const LAYERS = { inputs: 20, hidden: 16, classes: 10, layers: 3 };
const SMALLEST: Sizes = { ...SMALL, microBatch: 8, microBatches: 4, steps: 2 };

/** Features and labels of noise. */
function noise(count: number): Batch[] {
  const generator = substream(1, "noise"), draw = () => generator.next();
  const { microBatch } = SMALLEST, { inputs, classes } = LAYERS;
  return Array.from({ length: count }, () => ({
    features: Float32Array.from({ length: microBatch * inputs }, () => (draw() | 0) / 2 ** 31),
    labels: Int32Array.from({ length: microBatch }, () => (draw() >>> 0) % classes),
  }));
}

/** How sums are cut and when they start differs from schedule to schedule, and must not show. */
const CUTS = [
  { sync: "end", bucketSize: 100, coarsening: 1 },
  { sync: "eager", bucketSize: 50, coarsening: 3 },
  { sync: "eager-opt", bucketSize: 170, coarsening: 2 },
] as const satisfies { sync: SyncStrategy; bucketSize: number; coarsening: number }[];

/** Variants of schedules beside their defaults. */
const VARIANTS: Record<string, Partial<ScheduleOptions>[]> = {
  chimera: [{}, { scale: "doubling" }, { scale: "halving" }],
  "message-driven": [{ order: "fifo" }, { order: "backward-first", pipelineLimit: 3 }],
};

const onGpu: Options = {
  ...{ model: mlp(LAYERS, SMALLEST.microBatch), device: "webgpu", workers: 2 },
  data: noise(4 * SMALLEST.microBatches * SMALLEST.steps),
};
const mlpOracle = openOracle(SMALLEST);

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
      const options: Options = { ...onGpu, schedule, scheduleOptions, replicas };
      const { grouping } = scheduleOf(options, SMALLEST.microBatches);
      await mlpOracle(grouping, options, { ...isFlushed && CUTS[i % 3], link: DELAYS });
    });
  }
}

// A product over half the samples at a time: the sums are cut elsewhere.
gpuTest(
  "backwards in halves on webgpu are within 1e-6 of whole ones, and have other bits",
  async () => {
    const options: Options = { ...onGpu, schedule: "chimera", replicas: 2, runtime: "serial" };
    const whole = await trained(SMALLEST, options);
    const halves = await trained(SMALLEST, { ...options, scheduleOptions: { scale: "halving" } });
    assert.notEqual(halves.bits.hash, whole.bits.hash);
    assertNear(halves.bits.numbers.flat(), whole.bits.numbers.flat(), 1e-6, "halves");
  },
);

// Each process compiles all shaders anew.
for (const how of atDepth<Options[]>([], [{ runtime: "workers", sync: "eager" }])) {
  gpuTest("copies in processes have the bits of the serial run on webgpu", async () => {
    await mlpOracle("processes", { ...onGpu, schedule: "chimera" }, how);
  });
}

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
