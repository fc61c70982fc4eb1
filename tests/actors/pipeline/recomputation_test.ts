/** Recomputation as an action: lists with R train, with the same bits, from less memory. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2, totalBytes } from "../../../kernels/mod.ts";
import {
  createSchedule,
  parseCsv,
  type Schedule,
  scheduleFromLists,
  withRecomputation,
} from "../../../schedules/mod.ts";
import { batchesOf, outcome, type Sizes, SMALL } from "../runs.ts";

const SIZES: Sizes = { ...SMALL, layers: 4, hidden: 16, seq: 8, microBatches: 8, dropout: 0.1 };
const OPTIONS = { device: "native", runtime: "local" } as const;

const made = (name: string, workers: number, more = {}): Schedule =>
  createSchedule(name, { workers, microBatches: SIZES.microBatches, ...more });

const SCHEDULES = [
  made("gpipe", 2),
  made("1f1b", 4),
  made("interleaved", 2),
  made("zb-v", 2),
  made("chimera", 2, { scale: "doubling" }),
];

/** What a run planned that its workers hold; and what they held and learnt, unless that is all. */
async function runOf(schedule: Schedule, more: Partial<TrainOptions> = {}, isPlanned = false) {
  const { microBatch, microBatches, steps } = SIZES, { workers } = schedule;
  const model = gpt2(SIZES, microBatch), data = batchesOf(SIZES);
  const how = { ...OPTIONS, steps, microBatches, workers, schedule, ...more };
  const losses: number[] = [];
  let planned: unknown[] = [], bytes = 0;
  for await (const event of train({ model, data, ...how })) {
    if (event.type === "step") losses.push(event.loss);
    if (event.type === "plan") {
      const { memory } = event.plan;
      planned = memory.map(({ device, host }) => ({ device, host }));
      bytes = memory.reduce((sum, { device }) => sum + totalBytes(device), 0);
      if (isPlanned) break;
    }
    if (event.type !== "end") continue;
    return { planned, bytes, used: event.memory, bits: { losses, hash: event.weightsHash } };
  }
  return { planned, bytes };
}

Deno.test("lists with R have the serial bits, and hold what was planned: less than without", async () => {
  for (const schedule of SCHEDULES) {
    const what = `${schedule.name} on ${schedule.workers} workers`;
    const whole = await runOf(schedule, {}, true);
    const serial = await runOf(schedule, { runtime: "serial" });
    const run = await runOf(withRecomputation(schedule));
    assert.deepEqual(run.bits, serial.bits, what);
    assert.deepEqual(run.used, run.planned, what);
    assert.ok(run.bytes < whole.bytes, what);
  }
});

Deno.test("an R is an action that its worker runs and tells of", async () => {
  const csv = "0F0,0F1,0R0,0B0,0R1,0B1\n1F0,1F1,1R0,1B0,1R1,1B1\n";
  const schedule = scheduleFromLists("mine", parseCsv(csv));
  const sizes = { ...SIZES, microBatches: 2, steps: 1 };
  const actions: string[] = [];
  for await (
    const event of train({
      ...{ model: gpt2(sizes, sizes.microBatch), data: batchesOf(sizes), steps: 1 },
      ...{ microBatches: 2, workers: 2, schedule, trace: true, ...OPTIONS },
    })
  ) {
    if (event.type !== "step") continue;
    actions.push(
      ...event.traces![0]!.filter(({ name }) => /^\dR/.test(name)).map((one) => one.name),
    );
  }
  assert.deepEqual(actions, ["0R0", "0R1"]);
});

Deno.test("a last step with fewer micro-batches than the lists are for has the serial bits, too", async () => {
  const schedule = withRecomputation(made("1f1b", 2)),
    options = { ...OPTIONS, workers: 2, schedule };
  const data = batchesOf(SIZES, SIZES.microBatches + 3);
  const run = await outcome(SIZES, { ...options, data, steps: 2 });
  const serial = await outcome(SIZES, { ...options, data, steps: 2, runtime: "serial" });
  assert.deepEqual(run.bits, serial.bits);
});

const refused = (csv: string, options: Partial<TrainOptions> = {}) => {
  const schedule = scheduleFromLists("mine", parseCsv(csv));
  const { microBatches, workers } = schedule, sizes = { ...SIZES, microBatches };
  return outcome(sizes, { ...OPTIONS, workers, schedule, ...options });
};

Deno.test("recomputations that no kernel can serve are refused by name", async () => {
  const cannot = "Cannot train with the schedule mine: ";
  const cases: [csv: string, options: Partial<TrainOptions>, message: string][] = [
    [
      "0F0,0R0,0F1,0B0,0R1,0B1\n",
      {},
      "what 0R0 brings back must be read before anything else of its stage runs, received 0F1 after it",
    ],
    [
      "0F0,0F1,0R0,0B0,0B1\n",
      {},
      "each of 2 micro-batches must have an R of stage 0, or none, received 1",
    ],
    [
      "0F0,0F1,0R0,0B0,0R1,0B1\n",
      { recomputeInterval: 1 },
      "its R say what is computed again, so recomputeInterval must be none, received 1",
    ],
    [
      "0F0,0F1,0R0,0B0,0R1,0B1\n",
      { policy: "elastic" },
      "lists with R must be followed to the letter, received elastic",
    ],
    [
      "0F0,0R0,0B0.0,0B0.1\n",
      {},
      "what 0R0 brings back must be read before anything else of its stage runs, received 0B0.0 after it",
    ],
  ];
  for (const [csv, options, message] of cases) {
    await assert.rejects(refused(csv, options), { name: "RangeError", message: cannot + message });
  }
});
