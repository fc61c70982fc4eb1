/** Mixed precision in the pipeline: bits, distance from FP32, and steps that overflow. */

import assert from "node:assert/strict";
import { NonFiniteError, train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { batchesOf, outcome, type Sizes, SMALL } from "../runs.ts";

const DEEP: Sizes = { ...SMALL, layers: 4, microBatches: 4 };

Deno.test("FP16 runs of every kind of schedule have the bits of their serial runs", async () => {
  for (const schedule of ["1f1b", "chimera", "zb-h1"]) {
    const options = {
      device: "native",
      workers: 2,
      replicas: 2,
      schedule,
      precision: "fp16",
    } as const;
    const serial = await outcome(DEEP, { ...options, runtime: "serial" });
    for (const runtime of ["local", "workers"] as const) {
      assert.deepEqual((await outcome(DEEP, { ...options, runtime })).bits, serial.bits, schedule);
    }
  }
});

Deno.test("losses of FP16 stay within 2e-3 of those of FP32 over 50 steps", async () => {
  const sizes = { ...DEEP, steps: 50 };
  const options = { device: "native", workers: 2, schedule: "1f1b", runtime: "local" } as const;
  const exact = await outcome(sizes, options);
  const half = await outcome(sizes, { ...options, precision: "fp16", lossScale: 1024 });
  assert.equal(half.bits.losses.length, 50);
  const distances = half.bits.losses.map((loss, i) => Math.abs(loss / exact.bits.losses[i]! - 1));
  for (const [i, distance] of distances.entries()) {
    assert.ok(distance <= 2e-3, `step ${i + 1}: ${distance}`);
  }
  // Two losses may be equal by chance.
  assert.ok(distances.filter((distance) => distance === 0).length <= 2, `${distances}`);
});

/** Trains until the end or an error; returns what happened. */
async function events(options: Partial<TrainOptions>) {
  const steps: string[] = [];
  const run = train({
    model: gpt2(DEEP, DEEP.microBatch),
    data: batchesOf(DEEP, 4 * 30),
    steps: 30,
    microBatches: 4,
    workers: 2,
    schedule: "chimera",
    device: "native",
    runtime: "local",
    precision: "fp16",
    ...options,
  });
  try {
    for await (const event of run) {
      if (event.type === "skip") steps.push(`skip ${event.lossScale}`);
      if (event.type === "step") steps.push("step");
    }
    return { steps };
  } catch (error) {
    return { steps, error };
  }
}

Deno.test("a dynamic loss scale begins where nothing overflows here, and a static one stays", async () => {
  const { steps } = await events({ steps: 6 });
  assert.deepEqual(new Set(steps), new Set(["step"]), "65,536 is no overflow here");
  const tooHigh = await events({ steps: 3, lossScale: 2 ** 30 });
  assert.deepEqual(tooHigh.steps, ["skip 1073741824", "skip 1073741824", "skip 1073741824"]);
});

Deno.test("a scale that overflows in twenty steps in a row ends the run with the reason", async () => {
  const { steps, error } = await events({ lossScale: 2 ** 30 });
  assert.equal(steps.length, 19);
  assert.ok(error instanceof NonFiniteError);
  assert.match(error.message, /^Cannot take step 20 after 19 skipped steps: /);
});
