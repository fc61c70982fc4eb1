/**
 * Dropout drops different elements each time, with the bits of the serial run in all runs of the
 * smallest GPT; recomputation as an action, R, changes no bit, and lists with R hold the planned amount.
 */

import assert from "node:assert/strict";
import { compileModel, gpt2 } from "../../../kernels/mod.ts";
import { totalBytes } from "../../../kernels/stage/memory.ts";
import {
  createSchedule,
  parseCsv,
  type Schedule,
  scheduleFromLists,
  withRecomputation,
} from "../../../schedules/mod.ts";
import { slotsOf } from "../../../actors/run/memory.ts";
import { batchesOf, type Sizes } from "../runs.ts";
import { drawWeights } from "../../kernels/stage/stage_runs.ts";
import { assertRefused, type Options, TINY, trained } from "./trained.ts";

const SIZES: Sizes = { ...TINY, layers: 2 };

Deno.test("each step, micro-batch and seed leaves out other elements, and an evaluation none", async () => {
  const [batch] = batchesOf(SIZES, 1);
  const weights = drawWeights(compileModel(gpt2(SIZES, SIZES.microBatch), "none"));
  /** The same micro-batch with the same weights again and again. */
  const losses = async (dropout: number, seed: number, microBatches: number) => {
    const { events } = await trained({ ...SIZES, dropout }, {
      ...{ data: Array(4).fill(batch), weights, seed, microBatches },
      ...{ steps: 4 / microBatches, learningRate: 0, device: "reference", runtime: "local" },
      evaluation: { every: 2, batches: [batch!], atStart: true },
    });
    const lossesOf = (type: "step" | "evaluation") =>
      events.flatMap((event) => event.type === type ? [event.loss] : []);
    return { step: lossesOf("step"), evaluation: lossesOf("evaluation") };
  };
  const still = await losses(0, 1, 1), first = await losses(0.2, 1, 1);
  assert.deepEqual(first.evaluation, still.evaluation);
  const drawn = [still, first, await losses(0.2, 2, 1)].flatMap(({ step }) => step);
  assert.equal(new Set(drawn).size, 1 + 4 + 4);
  const both = await losses(0.2, 1, 2);
  assert.notEqual(both.step[0], first.step[0], "the second micro-batch has a mask of its own");
});

const made = (name: string, workers: number, more = {}): Schedule =>
  createSchedule(name, { workers, microBatches: SIZES.microBatches, ...more });

Deno.test("lists with R have the serial bits, and hold the planned amount: less than without R", async () => {
  const schedules = ["gpipe", "1f1b", "interleaved", "zb-v"].map((name, i) =>
    made(name, i === 1 ? 4 : 2)
  );
  schedules.push(made("chimera", 2, { scale: "doubling" }));
  const sizes = { ...SIZES, layers: 4, hidden: 16, microBatches: 4 };
  for (const schedule of schedules) {
    const what = `${schedule.name} on ${schedule.workers} workers`, { workers } = schedule;
    const whole = await trained(sizes, { workers, schedule, runtime: "serial" });
    const again = withRecomputation(schedule);
    const run = await trained(sizes, { workers, schedule: again, runtime: "local" });
    assert.deepEqual(run.bits, whole.bits, what);
    const planned = run.plan.memory.map(({ device, host }) => ({ device, host }));
    assert.deepEqual(run.end.memory, planned, what);
    const bytes = ({ plan }: typeof run) =>
      plan.memory.reduce((sum, { device }) => sum + totalBytes(device), 0);
    assert.ok(bytes(run) < bytes(whole), what);
  }
});

Deno.test("an R frees no slot: what comes after it is planned as without it", () => {
  for (const list of ["0F0,0R0,0B0,0F1,0F2", "0F0.0,0F0.1,0R0.1,0B0.1,0R0.0,0B0.0,0F1.0,0F1.1"]) {
    const [again, kept] = [list, list.replaceAll(/\dR[\d.]+,/g, "")].map((csv) =>
      slotsOf(scheduleFromLists("mine", parseCsv(csv)), 0, 0, 0)
    );
    assert.deepEqual(again, kept);
  }
});

Deno.test("recomputations that no kernel can serve are refused by name", async () => {
  const cases: readonly (readonly [csv: string, options?: Options])[] = [
    ["0F0,0R0,0F1,0B0,0R1,0B1\n"],
    ["0F0,0F1,0R0,0B0,0B1\n"],
    ["0F0,0F1,0R0,0B0,0R1,0B1\n", { recomputeInterval: 1 }],
    ["0F0,0F1,0R0,0B0,0R1,0B1\n", { policy: "elastic" }],
    ["0F0,0R0,0B0.0,0B0.1\n"],
  ];
  const runs = cases.map(([csv, options]) => {
    const schedule = scheduleFromLists("mine", parseCsv(csv)), { microBatches, workers } = schedule;
    const about = `${csv.trim()} ${JSON.stringify(options ?? {})}`;
    return [about, { microBatches, workers, schedule, ...options }] as const;
  });
  await assertRefused("recomputation", SIZES, Object.fromEntries(runs));
});
