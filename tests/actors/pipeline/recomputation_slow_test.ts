/**
 * Dropout leaves out the same elements whoever computes them, when, and how often; recomputation as an
 * option or as an action, R, changes no bit, and lists with R hold what was planned.
 */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/mod.ts";
import { compileModel, gpt2, initialValues, totalBytes } from "../../../kernels/mod.ts";
import {
  createSchedule,
  parseCsv,
  type Schedule,
  scheduleFromLists,
  withRecomputation,
} from "../../../schedules/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { batchesOf, fewAtATime, type Sizes } from "../runs.ts";
import { openOracle, type Options, TINY, trained } from "./trained.ts";

const SIZES: Sizes = { ...TINY, layers: 2 };

Deno.test("dropout has the serial bits on every device, in threads, and where activations are computed again", async () => {
  const ways: readonly (readonly [Options["device"] & string, Options])[] = [
    ["native", { runtime: "workers", schedule: "zb-h1", recompute: "cheap" }],
    ["native", { schedule: "zb-v", recomputeInterval: 2 }],
    ["wasm", { runtime: "workers", schedule: "1f1b", recompute: "full" }],
    ["reference", { schedule: "zb-h1", recomputeInterval: 1 }],
  ];
  const still = await trained({ ...SIZES, dropout: 0 }, { runtime: "serial" });
  const oracle = openOracle(SIZES);
  await fewAtATime(ways, async ([device, way]) => {
    const { bits } = await oracle(device, { device }, { ...way, workers: 2 });
    assert.notEqual(bits.hash, still.bits.hash);
  });
});

folderTest(
  "a run with dropout that loses workers, or is resumed, has the bits of one left in peace",
  async (directory) => {
    const sizes = { ...SIZES, steps: 4 };
    const faults = [3, 17].map((afterActions, i) => ({
      ...{ worker: i % 2, afterActions, kind: "throw" as const },
    }));
    const lost = { runtime: "workers", workers: 2, faults } as const;
    const { bits } = await openOracle(sizes)("serial", {}, lost);
    const first = { checkpoint: { directory, config: {} }, workers: 2, runtime: "local" } as const;
    await trained({ ...sizes, steps: 2 }, first);
    const resume = await readCheckpoint(directory), data = batchesOf(sizes);
    const rest = { workers: 2, runtime: "local", data, resume, schedule: "gpipe" } as const;
    const resumed = await trained(sizes, rest);
    assert.deepEqual(resumed.bits, { ...bits, numbers: bits.numbers.slice(2) });
  },
);

Deno.test("each step, micro-batch and seed leaves out other elements, and an evaluation none", async () => {
  const [batch] = batchesOf(SIZES, 1), { microBatch } = SIZES;
  const model = (dropout: number) => gpt2({ ...SIZES, dropout }, microBatch);
  const weights = new Map(
    compileModel(model(0), "none").parameters.map(({ name, spec }) => [
      name,
      initialValues(spec, name, 1),
    ]),
  );
  /** The same micro-batch with the same weights again and again. */
  const losses = async (dropout: number, seed: number, microBatches: number) => {
    const { events } = await trained(SIZES, {
      ...{ model: model(dropout), data: Array(4).fill(batch), weights, seed, microBatches },
      ...{ steps: 4 / microBatches, learningRate: 0, device: "reference", runtime: "local" },
      evaluation: { every: 2, batches: [batch!], atStart: true },
    });
    const found = { step: [] as number[], evaluation: [] as number[] };
    for (const event of events) {
      if (event.type === "step" || event.type === "evaluation") found[event.type].push(event.loss);
    }
    return found;
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

Deno.test("lists with R have the serial bits, and hold what was planned: less than without", async () => {
  const schedules = [
    made("gpipe", 2),
    made("1f1b", 4),
    made("interleaved", 2),
    made("zb-v", 2),
    made("chimera", 2, { scale: "doubling" }),
  ];
  const sizes = { ...SIZES, layers: 4, hidden: 16, microBatches: 4 };
  for (const schedule of schedules) {
    const what = `${schedule.name} on ${schedule.workers} workers`, { workers } = schedule;
    const whole = await trained(sizes, { workers, schedule, runtime: "serial" });
    const run = await trained(sizes, {
      ...{ workers, schedule: withRecomputation(schedule), runtime: "local" },
    });
    assert.deepEqual(run.bits, whole.bits, what);
    assert.deepEqual(
      run.end.memory,
      run.plan.memory.map(({ device, host }) => ({ device, host })),
      what,
    );
    const bytes = ({ plan }: typeof run) =>
      plan.memory.reduce((sum, { device }) => sum + totalBytes(device), 0);
    assert.ok(bytes(run) < bytes(whole), what);
  }
});

Deno.test("an R is an action that its worker runs and reports", async () => {
  const csv = "0F0,0F1,0R0,0B0,0R1,0B1\n1F0,1F1,1R0,1B0,1R1,1B1\n";
  const schedule = scheduleFromLists("mine", parseCsv(csv));
  const { events } = await trained({ ...SIZES, microBatches: 2, steps: 1 }, {
    ...{ workers: 2, schedule, trace: true, runtime: "local" },
  });
  const [step] = events.filter((event) => event.type === "step");
  const names = step!.traces![0]!.map(({ name }) => name).filter((name) => /^\dR/.test(name));
  assert.deepEqual(names, ["0R0", "0R1"]);
});

Deno.test("a last step with fewer micro-batches than the lists are for has the serial bits, too", async () => {
  const schedule = withRecomputation(made("1f1b", 2)),
    data = batchesOf(SIZES, SIZES.microBatches + 3);
  await openOracle(SIZES)("1f1b", { workers: 2, schedule, data });
});

Deno.test("recomputations that no kernel can serve are refused by name", async () => {
  const cannot = "Cannot train with the schedule mine: ";
  const cases: [csv: string, options: Options, message: string][] = [
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
    const schedule = scheduleFromLists("mine", parseCsv(csv)), { microBatches, workers } = schedule;
    const run = trained({ ...SIZES, microBatches }, { workers, schedule, ...options });
    await assert.rejects(run, { name: "RangeError", message: cannot + message });
  }
});
