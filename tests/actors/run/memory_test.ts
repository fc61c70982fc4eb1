/** What workers hold: planned before the run, counted during it, and refused beyond a limit. */

import assert from "node:assert/strict";
import { limitedBytes, train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2, totalBytes } from "../../../kernels/mod.ts";
import { batchesOf, outcome, type Sizes, SMALL } from "../runs.ts";

const DEEP: Sizes = { ...SMALL, layers: 6, microBatches: 4 };

/** The plan of a run and what its workers held. */
async function memoryOf(options: Partial<TrainOptions>) {
  const { microBatch, microBatches, steps } = DEEP;
  let planned;
  for await (
    const event of train({
      model: gpt2(DEEP, microBatch),
      data: batchesOf(DEEP),
      steps,
      microBatches,
      device: "native",
      runtime: "local",
      ...options,
    })
  ) {
    if (event.type === "plan") planned = event.plan.memory;
    if (event.type === "end") return { planned: planned!, used: event.memory! };
  }
  throw new Error("a run must end with an end event");
}

const RUNS: readonly Partial<TrainOptions>[] = [
  { schedule: "1f1b", workers: 4 },
  { schedule: "chimera", workers: 4, precision: "fp16" },
  { schedule: "chimera", workers: 4, scheduleOptions: { scale: "halving" } },
  { schedule: "zb-h1", workers: 2, recompute: "cheap" },
  { schedule: "hanayo", workers: 2, recomputeInterval: 2 },
  { schedule: "gpipe", workers: 2, offload: true, precision: "fp16", bucketSize: 1000 },
  { schedule: "seq1f1b", workers: 2, scheduleOptions: { slices: 4 } },
  { schedule: "seq1f1b", workers: 4, scheduleOptions: { slices: 2 }, recomputeInterval: 1 },
  { schedule: "pipedream", workers: 2 },
  { schedule: "message-driven", workers: 2 },
  { schedule: "message-driven", workers: 2, scheduleOptions: { pipelineLimit: 4 } },
];

Deno.test("each worker holds, byte by byte, what the plan says", async () => {
  for (const options of RUNS) {
    const { planned, used } = await memoryOf(options);
    const plain = planned.map(({ device, host }) => ({ device, host }));
    assert.deepEqual(used, plain, JSON.stringify(options));
    assert.ok(planned.every(({ isBound }) => !isBound));
  }
});

Deno.test("a message-driven worker holds at most what the plan says, whatever the delays", async () => {
  for (const order of ["fifo", "backward-first"] as const) {
    const { planned, used } = await memoryOf({
      ...{ schedule: "message-driven", workers: 4, scheduleOptions: { order } },
      link: { latencyUs: 0, gigabytesPerSecond: 1, jitterUs: 2000 },
    });
    assert.deepEqual(planned.map(({ isBound }) => isBound), [false, true, true, false]);
    for (const [worker, { device, isBound }] of planned.entries()) {
      const held = used[worker]!.device.activations, what = `worker ${worker}, ${order}`;
      assert.ok(isBound ? held <= device.activations : held === device.activations, what);
    }
  }
});

Deno.test("recomputing every second layer keeps the bits and holds fewer activations", async () => {
  const options = { schedule: "gpipe", workers: 2, device: "native", runtime: "local" } as const;
  const all = await outcome(DEEP, options);
  const few = await outcome(DEEP, { ...options, recomputeInterval: 2 });
  assert.deepEqual(few.bits, all.bits);
  const [before, after] = [
    await memoryOf(options),
    await memoryOf({ ...options, recomputeInterval: 2 }),
  ];
  for (const [worker, { device }] of after.used.entries()) {
    assert.ok(device.activations < before.used[worker]!.device.activations / 2);
  }
});

Deno.test("offloading keeps the bits and 8φ bytes of FP32, or 4φ of FP16, and some buckets", async () => {
  for (const [precision, perElement, perBucket] of [["fp32", 8, 8], ["fp16", 4, 16]] as const) {
    const bucketSize = 1000, workers = 2;
    const options = { schedule: "1f1b", workers, precision, bucketSize, device: "wasm" } as const;
    const there = await outcome(DEEP, { ...options, runtime: "local" });
    const away = await outcome(DEEP, { ...options, runtime: "local", offload: true });
    assert.deepEqual(away.bits, there.bits);
    const { used } = await memoryOf({ ...options, offload: true });
    const elements = await parameterCounts(workers);
    for (const [worker, { device }] of used.entries()) {
      const formula = perElement * elements[worker]! + perBucket * bucketSize;
      const counted = totalBytes(device) - device.activations;
      assert.ok(Math.abs(counted / formula - 1) < 0.05, `${counted} bytes, formula ${formula}`);
    }
  }
});

/** Trained numbers on each worker. */
async function parameterCounts(workers: number): Promise<number[]> {
  const model = gpt2(DEEP, DEEP.microBatch), options = { schedule: "1f1b", workers, steps: 1 };
  for await (const event of train({ model, data: [], device: "wasm", ...options })) {
    if (event.type === "plan") return event.plan.stages.map(({ parameters }) => parameters);
  }
  throw new Error("a run must begin with its plan");
}

Deno.test("a run beyond the memory limit is refused with the cheapest change that fits", async () => {
  const { planned } = await memoryOf({ schedule: "gpipe", workers: 2 });
  const most = Math.max(...planned.map((one) => limitedBytes(one, "native")));
  await memoryOf({ schedule: "gpipe", workers: 2, memoryLimitBytes: most });
  await assert.rejects(
    memoryOf({ schedule: "gpipe", workers: 2, memoryLimitBytes: most - 1 }),
    /^RangeError: Cannot train within the memory limit: each worker must need at most .* MiB, received .* MiB on worker \d; --recompute cheap would need .* MiB$/,
  );
  const driven = { schedule: "message-driven", workers: 2, scheduleOptions: { pipelineLimit: 4 } };
  const fewest = (await memoryOf(driven)).planned.map((one) => limitedBytes(one, "native"));
  await assert.rejects(
    memoryOf({ ...driven, memoryLimitBytes: Math.max(...fewest) - 1 }),
    /received .* MiB on worker 0; --pipeline-limit 3 would need .* MiB$/,
  );
  await assert.rejects(
    memoryOf({ schedule: "gpipe", workers: 2, memoryLimitBytes: 10_000 }),
    /even .* would need .* MiB: take more workers or a smaller micro-batch$/,
  );
});
