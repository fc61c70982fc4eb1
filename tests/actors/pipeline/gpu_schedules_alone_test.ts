/**
 * Every schedule on the GPU: losses, norms and weights have the bits of the serial run of the same
 * schedule on the same adapter.
 */

import assert from "node:assert/strict";
import type { SyncStrategy, TrainOptions } from "../../../actors/mod.ts";
import { type Batch, mlp, substream } from "../../../kernels/mod.ts";
import {
  createSchedule,
  scheduleDefinitions,
  type ScheduleOptions,
} from "../../../schedules/mod.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { groupingOf, once, outcome, type Sizes, SMALL } from "../runs.ts";

keepGpuOpen();

/** Four layers, enough for the stages of every schedule on two workers, and cheap. */
const LAYERS = { inputs: 20, hidden: 16, classes: 10, layers: 3 };
const SIZES: Sizes = { ...SMALL, microBatch: 8, microBatches: 4, steps: 2 };

/** Features and labels of noise. */
function noise(count: number): Batch[] {
  const generator = substream(1, "noise"), draw = () => generator.next();
  const { microBatch } = SIZES, { inputs, classes } = LAYERS;
  return Array.from({ length: count }, () => ({
    features: Float32Array.from({ length: microBatch * inputs }, () => (draw() | 0) / 2 ** 31),
    labels: Int32Array.from({ length: microBatch }, () => (draw() >>> 0) % classes),
  }));
}

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

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

const run = (options: Partial<TrainOptions>) =>
  outcome(SIZES, {
    model: mlp(LAYERS, SIZES.microBatch),
    data: noise(4 * SIZES.microBatches * SIZES.steps),
    device: "webgpu",
    workers: 2,
    ...options,
  });

/** The serial run of a grouping: of any schedule that has it. */
const serialOf = once((_grouping: string, options: Partial<TrainOptions>) =>
  run({ ...options, runtime: "serial" })
);

for (const [i, { name: schedule }] of scheduleDefinitions.entries()) {
  const isFlushed = !schedule.startsWith("pipedream"), replicas = isFlushed ? 2 : 1;
  for (const scheduleOptions of VARIANTS[schedule] ?? [{}]) {
    gpuTest(
      `${schedule} ${
        JSON.stringify(scheduleOptions)
      } in ${replicas} replicas on webgpu has the serial bits, whatever the cuts and delays`,
      async () => {
        const { microBatches } = SIZES, options = { schedule, scheduleOptions, replicas };
        const made = createSchedule(schedule, { ...scheduleOptions, workers: 2, microBatches });
        const grouping = isFlushed ? groupingOf(made, replicas) : schedule;
        const serial = await serialOf(grouping, options);
        const cut = isFlushed ? CUTS[i % CUTS.length]! : {};
        const { bits } = await run({ ...options, ...cut, runtime: "local", link: DELAYS });
        assert.deepEqual(bits, serial.bits);
      },
    );
  }
}

// A product over half the samples at a time: the sums are cut elsewhere.
gpuTest(
  "backwards in halves on webgpu are within 1e-6 of whole ones, and have other bits",
  async () => {
    const runs = [];
    for (const scheduleOptions of [{}, { scale: "halving" }] as const) {
      const options = { schedule: "chimera", scheduleOptions, replicas: 2 };
      const made = createSchedule("chimera", { ...scheduleOptions, workers: 2, microBatches: 4 });
      runs.push((await serialOf(groupingOf(made, 2), options)).bits);
    }
    const [whole, halves] = runs as [typeof runs[0], typeof runs[0]];
    assert.notEqual(halves.hash, whole.hash);
    for (const name of ["losses", "norms"] as const) {
      for (const [i, value] of halves[name].entries()) {
        const distance = Math.abs(value / whole[name][i]! - 1);
        assert.ok(distance <= 1e-6, `${name} of step ${i + 1}: ${distance}`);
      }
    }
  },
);

gpuTest("copies in processes have the bits of the serial run on webgpu", async () => {
  const options = { schedule: "chimera" };
  const serial = await run({ ...options, runtime: "serial" });
  const { bits } = await run({ ...options, runtime: "workers", sync: "eager" });
  assert.deepEqual(bits, serial.bits);
});
