/**
 * A GPT on the GPU: whatever the schedule and its options, losses, norms and weights have the bits of
 * the serial run on the same adapter; and what other devices have begun goes on there.
 */

import assert from "node:assert/strict";
import { readCheckpoint, train, type TrainOptions } from "../../../actors/mod.ts";
import { generate, gpt2, openDevice } from "../../../kernels/mod.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { batchesOf, once, type Sizes } from "../runs.ts";

keepGpuOpen();

/** Few and small shapes: most of the time is compiling shaders. */
const SIZES: Sizes = {
  ...{ layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 32 },
  ...{ microBatch: 2, microBatches: 4, steps: 2 },
};
const HELD = batchesOf({ ...SIZES, steps: 1 }, 2);

/** All numbers of a run, and the hash of its weights. */
async function run(options: Partial<TrainOptions>) {
  const numbers: unknown[] = [];
  const { microBatch, microBatches, steps } = SIZES;
  for await (
    const event of train({
      model: gpt2(SIZES, microBatch),
      data: batchesOf(SIZES, 2 * microBatches * steps),
      steps,
      microBatches,
      device: "webgpu",
      ...options,
    })
  ) {
    if (event.type === "step") numbers.push([event.step, event.loss, event.gradNorm]);
    if (event.type === "evaluation") numbers.push([event.step, event.loss]);
    if (event.type === "end") return { numbers, hash: event.weightsHash };
  }
  throw new Error("a run must end with an end event");
}

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

/** Two copies of tied weights whose gradients are clipped. */
const COPIES: Partial<TrainOptions> = {
  schedule: "chimera",
  workers: 2,
  replicas: 2,
  clip: 0.1,
  model: gpt2({ ...SIZES, tie: true }, SIZES.microBatch),
};

/** Runs of equal bits: the options of the serial one, and what the others add. */
const CASES: Record<string, readonly [Partial<TrainOptions>, ...Partial<TrainOptions>[]]> = {
  "one copy": [
    { evaluation: { every: 1, batches: HELD, atStart: true } },
    { schedule: "1f1b", workers: 2 },
    { schedule: "zb-v", workers: 2, link: DELAYS },
    { schedule: "hanayo", workers: 2, recompute: "full", recomputeInterval: 1 },
    { schedule: "message-driven", workers: 3, offload: true, bucketSize: 500 },
  ],
  "four tied copies, clipped": [
    COPIES,
    { sync: "end", bucketSize: 1000 },
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

const serialOf = once((_name: string, options: Partial<TrainOptions>) =>
  run({ ...options, runtime: "serial" })
);

for (const [name, [shared, ...others]] of Object.entries(CASES)) {
  for (const options of others) {
    gpuTest(`${name} on webgpu: ${JSON.stringify(options)} has the serial bits`, async () => {
      const serial = await serialOf(name, shared);
      assert.deepEqual(await run({ ...shared, ...options, runtime: "local" }), serial);
    });
  }
}

/** Runs with a folder for checkpoints. */
async function withFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-" });
  try {
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Trains up to a step and leaves a checkpoint; goes on from the one that it finds. */
async function until(steps: number, directory: string, options: Partial<TrainOptions>) {
  const resume = await readCheckpoint(directory);
  const checkpoint = { directory, config: {} };
  return await run({ steps, checkpoint, runtime: "local", ...resume && { resume }, ...options });
}

gpuTest(
  "a run on webgpu that goes on from its checkpoint has the bits of one in one piece",
  () =>
    withFolder(async (folder) => {
      const chimera = { schedule: "chimera", workers: 2 },
        serial = { ...chimera, runtime: "serial" };
      const whole = await run({ ...serial, steps: 2 } as Partial<TrainOptions>);
      const first = await until(1, folder, chimera), second = await until(2, folder, chimera);
      assert.deepEqual([...first.numbers, ...second.numbers], whole.numbers);
      assert.equal(second.hash, whole.hash);
    }),
);

gpuTest(
  "a checkpoint goes from native to webgpu and back, and webgpu generates from it",
  () =>
    withFolder(async (folder) => {
      const numbers: unknown[] = [];
      for (const [i, device] of (["native", "webgpu", "native"] as const).entries()) {
        const part = await until(i + 1, folder, { device, schedule: "1f1b", workers: 2 });
        numbers.push(...part.numbers);
      }
      const native = await run({ device: "native", runtime: "serial", steps: 3 });
      assert.equal(numbers.length, 3);
      (numbers as number[][]).forEach(([step, ...received], i) =>
        received.forEach((value, k) => {
          const wanted = (native.numbers as number[][])[i]![k + 1]!;
          assert.ok(Math.abs(value / wanted - 1) < 1e-5, `step ${step}: ${value}, not ${wanted}`);
        })
      );
      const { weights } = (await readCheckpoint(folder))!.state;
      const texts = [];
      for (const name of ["native", "webgpu"]) {
        const device = await openDevice(name);
        const options = { config: SIZES, weights, prompt: [3, 5], tokens: 6, temperature: 0 };
        texts.push(await Array.fromAsync(generate(device, options)));
        device.close();
      }
      assert.deepEqual(texts[1], texts[0]);
    }),
);
