/** Steps on devices with memory of their own: no view at an offset, the same sums, and few copies. */

import assert from "node:assert/strict";
import { gpt2, openReference } from "../../../kernels/mod.ts";
import { createSchedule, type ScheduleOptions } from "../../../schedules/mod.ts";
import { ownMemory } from "../../kernels/own_memory.ts";
import { assertSameBits, drawTokens } from "../../kernels/stage/stage_runs.ts";
import { assertCopied, stepByHand, type Steps } from "./steps_by_hand.ts";

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
  { name: "1f1b" },
  { name: "chimera" },
  { name: "1f1b", options: { replicas: 2 }, coarsening: 1 },
  { name: "1f1b", options: { replicas: 2, bucketSize: 101 }, coarsening: 3 },
  { name: "chimera", options: { replicas: 2, bucketSize: 37 }, coarsening: 2 },
  { name: "chimera", options: { replicas: 3, precision: "fp16" }, coarsening: 3 },
  { name: "1f1b", isTied: true },
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

for (const replicas of [1, 2, 3]) {
  Deno.test(`a step of ${replicas} copies of each stage copies what the formula says`, async () => {
    const schedule = { workers: 3, microBatches: 3 };
    const steps = stepsOf({ name: "1f1b", schedule, options: { replicas }, coarsening: 2 });
    assertCopied(await stepByHand(steps), steps);
  });
}
