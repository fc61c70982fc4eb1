/** Steps on devices with separate memory: no views at an offset, the same sums, and few copies. */

import assert from "node:assert/strict";
import { gpt2, openReference } from "../../../kernels/mod.ts";
import { createSchedule, type ScheduleOptions } from "../../../schedules/mod.ts";
import { ownMemory } from "../../kernels/own_memory.ts";
import { assertSameBits, drawTokens } from "../../kernels/stage/stage_runs.ts";
import { copiedByStages, stepByHand, type Steps } from "./steps_by_hand.ts";

const CONFIG = { layers: 2, hidden: 8, heads: 2, seq: 4, vocab: 9 };

const withOwnMemory = async () => ownMemory(await openReference());

interface Case extends Partial<Omit<Steps, "options" | "schedule">> {
  readonly name: string;
  readonly schedule?: ScheduleOptions;
  readonly options?: Partial<Steps["options"]>;
  readonly isTied?: boolean;
}

function stepsOf({ name, schedule: given, options, isTied = false, ...rest }: Case): Steps {
  const schedule = createSchedule(name, { workers: 2, microBatches: 2, ...given });
  const count = (options?.replicas ?? 1) * schedule.microBatches;
  return {
    options: { model: gpt2({ ...CONFIG, tie: isTied }, 2), ...options },
    schedule,
    microBatches: drawTokens(count, 2 * CONFIG.seq, CONFIG.vocab),
    steps: 2,
    openDevice: withOwnMemory,
    ...rest,
  };
}

const CASES: readonly Case[] = [
  { name: "1f1b", options: { replicas: 2, bucketSize: 101 }, coarsening: 3 },
  { name: "chimera", options: { replicas: 2, bucketSize: 37 }, coarsening: 2 },
  { name: "chimera", options: { replicas: 3, precision: "fp16" }, coarsening: 3 },
  { name: "chimera", options: { precision: "fp16" }, isTied: true },
  { name: "zb-h1", options: { replicas: 2 } },
  { name: "chimera", options: { recomputeInterval: 1, offload: true } },
];

for (const one of CASES) {
  const { name, options, coarsening, isTied } = one;
  Deno.test(`${name} ${JSON.stringify({ ...options, coarsening, isTied })} has the bits of sums on the host, and no view at an offset`, async () => {
    const received = await stepByHand(stepsOf(one));
    const expected = await stepByHand({ ...stepsOf(one), openDevice: openReference });
    assertSameBits(received.results, expected.results, name);
    assert.deepEqual(received.squares, expected.squares);
  });
}

Deno.test("ring and Rabenseifner add on the device, too: all copies have the same bits", async () => {
  for (const replicas of [2, 3, 4]) {
    const one: Case = { name: "1f1b", options: { replicas }, algorithm: "fast", coarsening: 2 };
    const { results } = await stepByHand(stepsOf(one));
    for (const [name, weights] of results) {
      if (!name.endsWith(" of copy 1")) continue;
      assert.deepEqual(results.get(name.replace(/1$/, "0")), weights, name);
    }
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
    const schedule = { workers: 3, microBatches: 3 }, options = { replicas: Number(replicas) };
    const one: Case = { name: "1f1b", schedule, options, coarsening: 2 };
    const { workers } = await stepByHand(stepsOf(one));
    assert.deepEqual(copiedByStages(workers), expected);
  }
});
