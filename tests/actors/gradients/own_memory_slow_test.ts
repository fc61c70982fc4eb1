/** Runs on devices with separate memory: no views at an offset, the same sums, and few copies. */

import assert from "node:assert/strict";
import type { TrainEvent } from "../../../actors/options/train_events.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { outcome, type Sizes, SMALL } from "../runs.ts";
import { copiedInStep, onOwnMemory } from "./own_devices.ts";

const SIZES: Sizes = {
  ...{ ...SMALL, layers: 2, hidden: 8, heads: 2, seq: 4, vocab: 9, microBatches: 2 },
};

type Options = Partial<TrainOptions>;

/** Trains in messages: shared memory would spare the devices some copies. */
async function run(options: Options, sizes = SIZES, see?: (event: TrainEvent) => void) {
  await using system = createSystem();
  const place = { workers: 2, device: "reference", runtime: "local", retries: 0, system } as const;
  return await outcome(sizes, { ...place, ...options }, see);
}

const CASES: readonly (Options & { readonly tie?: boolean })[] = [
  { schedule: "1f1b", replicas: 2, bucketSize: 101, coarsening: 3 },
  { schedule: "chimera", replicas: 2, bucketSize: 37, coarsening: 2 },
  { schedule: "chimera", replicas: 3, precision: "fp16", coarsening: 3 },
  { schedule: "chimera", precision: "fp16", tie: true },
  { schedule: "zb-h1", replicas: 2 },
  { schedule: "chimera", recomputeInterval: 1, offload: true },
];
for (const { tie = false, ...options } of CASES) {
  Deno.test(`${JSON.stringify({ ...options, tie })} has the bits of sums on the host, all copies too, and no view at an offset`, async () => {
    const sizes = { ...SIZES, tie }, verify = "sums";
    const received = await onOwnMemory("reference", () => run({ ...options, verify }, sizes));
    assert.deepEqual(received.bits, (await run(options, sizes)).bits);
  });
}

Deno.test("ring and Rabenseifner add on the device, too: all copies have the same bits", async () => {
  for (const replicas of [2, 3, 4]) {
    const retaken: string[] = [], announce = (line: string) => void retaken.push(line);
    const how = { schedule: "1f1b", replicas, reduce: "fast", coarsening: 2, announce } as const;
    await onOwnMemory("reference", () => run({ ...how, verify: "sums" }));
    assert.deepEqual(retaken, []);
  }
});

/**
 * For each micro-batch a stage's fields, the activation in and the gradient in go up, on the last stage
 * the factor of the loss in its place; the activation or the losses and the gradient out come down. For
 * each step the optimizer's scalars go up, and a number for each parameter comes down for the vote, and
 * once more for the norm. An all-reduce of n elements among p copies takes n down from each, what
 * others add and the sums; up go the terms and the sums of others, 2n(p−1) from all.
 */
const COPIED = {
  1: [[896, 832], [1568, 1632], [908, 864]],
  3: [[9856, 7808], [19552, 15936], [13988, 10968]],
};

Deno.test("a step of one or more copies of each stage copies what the plan of its messages says", async () => {
  for (const [replicas, expected] of Object.entries(COPIED)) {
    const how = { schedule: "1f1b", workers: 3, coarsening: 2, replicas: Number(replicas) };
    const sizes = { ...SIZES, microBatches: 3 };
    const copied = await copiedInStep("reference", (see) => run(how, sizes, see));
    assert.deepEqual(copied, expected);
  }
});
