/**
 * The oracle: whatever the schedule, the number of workers and the runtime, losses and weights have
 * the same bits as those of the serial loop on the same device.
 */

import assert from "node:assert/strict";
import {
  analyze,
  createSchedule,
  type DeviceName,
  gpt2,
  substream,
  type TokenBatch,
  tokenBatches,
  train,
  type TrainOptions,
} from "../../mod.ts";

interface Sizes {
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly seq: number;
  readonly vocab: number;
  readonly microBatch: number;
  readonly microBatches: number;
  readonly steps: number;
}

const SMALL: Sizes = {
  layers: 2,
  hidden: 32,
  heads: 4,
  seq: 16,
  vocab: 64,
  microBatch: 2,
  microBatches: 6,
  steps: 2,
};

/** 512 rows a micro-batch: sums so long that another order of addition shows in the bits. */
const LARGE: Sizes = {
  ...SMALL,
  hidden: 256,
  seq: 128,
  vocab: 256,
  microBatch: 4,
  microBatches: 3,
};

/** Tokens drawn from seed 1. */
function batchesOf(sizes: Sizes): TokenBatch[] {
  const { seq, vocab, microBatch, microBatches, steps } = sizes, generator = substream(1, "tokens");
  const count = seq * microBatch * microBatches * steps + 1;
  const tokens = Int32Array.from({ length: count }, () => (generator.next() >>> 0) % vocab);
  return [...tokenBatches({ ...sizes, tokens, vocabularySize: vocab })];
}

/** Losses, hash and peaks of a run. */
async function outcome(sizes: Sizes, options: Partial<TrainOptions>) {
  const { microBatches, steps } = sizes;
  const losses: number[] = [], norms: number[] = [];
  for await (
    const event of train({
      model: gpt2(sizes, sizes.microBatch),
      data: batchesOf(sizes),
      steps,
      microBatches,
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss), norms.push(event.gradNorm);
    if (event.type === "end") {
      const { weightsHash, peakActivations } = event;
      return { bits: { losses, norms, weightsHash }, peakActivations };
    }
  }
  throw new Error("a run must end with an end event");
}

/** Every policy with every limit and order, for D workers. */
function policies(workers: number): Pick<TrainOptions, "schedule" | "scheduleOptions">[] {
  const limits = [...new Set([1, workers, 2 * workers])];
  return [
    { schedule: "gpipe" },
    { schedule: "1f1b" },
    ...limits.flatMap((pipelineLimit) =>
      (["fifo", "backward-first"] as const).map((order) => ({
        schedule: "message-driven",
        scheduleOptions: { pipelineLimit, order },
      }))
    ),
  ];
}

/** What reference/schedules.md says of the live activations of each worker. */
function assertPeaks(
  { schedule, scheduleOptions }: Pick<TrainOptions, "schedule" | "scheduleOptions">,
  workers: number,
  microBatches: number,
  peaks: readonly number[],
): void {
  const expected = peaks.map((_, s) => {
    if (schedule === "gpipe") return microBatches;
    if (schedule === "1f1b") return Math.min(microBatches, workers - s);
    return Math.min(scheduleOptions!.pipelineLimit!, microBatches);
  });
  if (schedule !== "message-driven") return assert.deepEqual(peaks, expected);
  assert.ok(peaks.every((peak, s) => peak <= expected[s]!), `${peaks} must be within ${expected}`);
  assert.equal(peaks[0], workers === 1 ? 1 : expected[0]);
  assert.equal(peaks.at(-1), 1);
}

Deno.test("schedules with several stages on a worker, or a backward in two parts, have the serial bits and the peaks of their analysis", async () => {
  const { microBatches } = SMALL, device = "native", workers = 2;
  const names = ["interleaved", "looped-bfs", "hanayo", "zb-h1", "zb-h2", "zb-v", "v-half"];
  const serial = await outcome(SMALL, { device, runtime: "serial" });
  for (const schedule of [...names, "v-min", "dualpipe-v"]) {
    const { peakActivations } = analyze(createSchedule(schedule, { workers, microBatches }));
    for (const runtime of ["local", "workers"] as const) {
      const run = await outcome(SMALL, { device, runtime, workers, schedule });
      assert.deepEqual(run.bits, serial.bits, schedule);
      assert.deepEqual(run.peakActivations, [...peakActivations], schedule);
    }
  }
});

for (const device of ["native", "wasm"] satisfies DeviceName[]) {
  for (const runtime of ["local", "workers"] as const) {
    Deno.test(`every policy with 1 to 4 workers (${runtime}) has the serial bits and the peaks of its schedule on ${device}`, async () => {
      const serial = await outcome(SMALL, { device, runtime: "serial" });
      for (const workers of [1, 2, 3, 4]) {
        for (const policy of policies(workers)) {
          const run = await outcome(SMALL, { device, runtime, workers, ...policy });
          const what = `${workers} workers, ${JSON.stringify(policy)}`;
          assert.deepEqual(run.bits, serial.bits, what);
          assertPeaks(policy, workers, SMALL.microBatches, run.peakActivations);
        }
      }
    });
  }

  Deno.test(`512 rows a micro-batch in workers have the serial bits on ${device}`, async () => {
    const serial = await outcome(LARGE, { device, runtime: "serial" });
    for (const policy of [{ schedule: "1f1b" }, { schedule: "message-driven" }]) {
      const run = await outcome(LARGE, { device, runtime: "workers", workers: 2, ...policy });
      assert.deepEqual(run.bits, serial.bits, policy.schedule);
    }
  });
}
