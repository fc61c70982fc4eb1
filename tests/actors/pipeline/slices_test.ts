/**
 * Sequences in slices train: losses, norms and weights have the bits of the serial run of the same
 * slicing, whoever computes which slice when, and are near those of whole sequences.
 */

import assert from "node:assert/strict";
import { type SyncStrategy, train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2, mlp } from "../../../kernels/mod.ts";
import {
  type Action,
  ActionList,
  analyze,
  B,
  createSchedule,
  defineSchedule,
  F,
  parseCsv,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  sliced,
  withLists,
} from "../../../schedules/mod.ts";
import { batchesOf, fewAtATime, once, outcome, type Sizes, SMALL } from "../runs.ts";

const SIZES: Sizes = { ...SMALL, hidden: 16, microBatches: 4, steps: 3, dropout: 0.2 };

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

/** Of each whole backward its two parts, that for the weights `late` backwards later. */
function split(order: Iterable<Action>, late: number): Action[] {
  const due: Action[] = [];
  const all = [...order].flatMap((action) => {
    if (action.kind !== "B") return [action];
    due.push({ ...action, kind: "W" });
    return [{ ...action, kind: "I" as const }, ...due.length > late ? [due.shift()!] : []];
  });
  return [...all, ...due];
}

const lists = (schedule: Schedule, change: (order: Iterable<Action>) => Action[]) =>
  scheduleFromLists("mine", withLists(schedule).lists.map((list) => ActionList.from(change(list))));

const seq1f1b = (workers: number, slices: number) =>
  createSchedule("seq1f1b", { workers, slices, microBatches: SIZES.microBatches });

/** Two pipes in opposite directions, or two stages of one on a worker, each as GPipe has it. */
const gpipeOfSlices = (slices: number, isLooped: boolean) =>
  defineSchedule({
    name: isLooped ? "looped slices" : "two pipes of slices",
    summary: "forwards first slice first, then backwards last slice first",
    place: ({ workers }) => ({
      stages: isLooped ? 2 * workers : workers,
      slices,
      ...isLooped ? { workerOf: (stage: number) => Math.min(stage, 2 * workers - 1 - stage) } : {
        replicas: 2,
        workerOf: (stage: number, replica: number) => replica === 0 ? stage : workers - 1 - stage,
        replicaOf: (microBatch: number) => microBatch % 2,
      },
    }),
    order(worker, { workers, microBatches }) {
      const all = Array.from({ length: microBatches }, (_, m) => m);
      const each = Array.from({ length: slices }, (_, s) => s);
      const held = (m: number) =>
        isLooped
          ? [worker, 2 * workers - 1 - worker]
          : [m % 2 === 0 ? worker : workers - 1 - worker];
      const stages = isLooped ? [0, 1] : [0];
      return [
        ...stages.flatMap((c) => all.flatMap((m) => each.map((s) => sliced(F(held(m)[c]!, m), s)))),
        ...stages.toReversed().flatMap((c) =>
          all.flatMap((m) => each.toReversed().map((s) => sliced(B(held(m)[c]!, m), s)))
        ),
      ];
    },
  });

type Case = Partial<TrainOptions> & { readonly sync?: SyncStrategy };

const CASES: Readonly<Record<string, Case>> = {
  "seq1f1b in two replicas": {
    schedule: "seq1f1b",
    scheduleOptions: { slices: 4 },
    workers: 2,
    replicas: 2,
    link: DELAYS,
  },
  "seq1f1b on three workers": {
    schedule: "seq1f1b",
    scheduleOptions: { slices: 2 },
    workers: 3,
    link: DELAYS,
    sync: "eager",
    bucketSize: 500,
  },
  "weights apart": { schedule: lists(seq1f1b(2, 4), (order) => split(order, 2)), link: DELAYS },
  "weights soon, recomputed": {
    schedule: lists(seq1f1b(2, 2), (order) => split(order, 1)),
    recomputeInterval: 1,
  },
  "brought back by actions": {
    schedule: lists(
      seq1f1b(2, 4),
      (order) =>
        [...order].flatMap((action) =>
          action.kind === "B" && action.stage === 0 ? [{ ...action, kind: "R" }, action] : [action]
        ),
    ),
    link: DELAYS,
  },
  "two pipes": { schedule: gpipeOfSlices(4, false), workers: 2, link: DELAYS },
  "two stages a worker": { schedule: gpipeOfSlices(2, true), workers: 2, link: DELAYS },
  "its list followed elastically": {
    schedule: "seq1f1b",
    scheduleOptions: { slices: 4 },
    policy: "elastic",
    workers: 2,
    link: DELAYS,
  },
  "terapipe": { schedule: "terapipe", scheduleOptions: { slices: 4 }, workers: 2, link: DELAYS },
  "seq1f1b-zb": {
    schedule: "seq1f1b-zb",
    scheduleOptions: { slices: 2 },
    workers: 3,
    link: DELAYS,
  },
  "slimpipe": { schedule: "slimpipe", scheduleOptions: { slices: 4 }, workers: 2, link: DELAYS },
  "in workers of their own": {
    schedule: "seq1f1b",
    scheduleOptions: { slices: 2 },
    workers: 2,
    runtime: "workers",
    recompute: "cheap",
  },
};

const serialOf = once((_what: string, sizes: Sizes, options: Case) =>
  outcome(sizes, { ...options, runtime: "serial" })
);

Deno.test("slices have the bits of their serial run, whatever the schedule and the delays", async () => {
  await fewAtATime(Object.entries(CASES), async ([what, one]) => {
    const sizes = { ...SIZES, tie: true }, options = { device: "native", ...one } as const;
    const run = await outcome(sizes, { runtime: "local", ...options });
    assert.deepEqual(run.bits, (await serialOf(what, sizes, options)).bits, what);
  });
});

Deno.test("every schedule of slices that comes with the package has the bits of its serial run", async () => {
  const names = scheduleDefinitions.filter(({ name, reads }) =>
    name !== "search" && reads?.includes("slices")
  ).map(({ name }) => name);
  assert.ok(names.length >= 4, `${names}`);
  await fewAtATime(names, async (schedule) => {
    const options = { device: "native", workers: 2, scheduleOptions: { slices: 4 } } as const;
    const run = await outcome(SIZES, { ...options, schedule, runtime: "local", link: DELAYS });
    // All add the gradients of slices in one order.
    assert.deepEqual(run.bits, (await serialOf("all", SIZES, { ...options, schedule })).bits);
    const made = createSchedule(schedule, {
      ...{ workers: 2, slices: 4, microBatches: SIZES.microBatches },
    });
    assert.deepEqual(run.peakActivations, analyze(made).peakActivations, schedule);
  });
});

Deno.test("slices have the losses and norms of whole sequences, within 1e-5 over several steps", async () => {
  const sizes = { ...SIZES, steps: 6, tie: true };
  const whole = await outcome(sizes, { device: "native", runtime: "serial" });
  for (const slices of [2, 4, 16]) {
    const { bits } = await outcome(sizes, {
      ...{ device: "native", runtime: "local", workers: 2 },
      schedule: "seq1f1b",
      scheduleOptions: { slices },
    });
    for (const name of ["losses", "norms"] as const) {
      for (const [i, value] of bits[name].entries()) {
        const off = Math.abs(value / whole.bits[name][i]! - 1);
        assert.ok(off <= 1e-5, `${slices} slices, ${name} of step ${i + 1}: off by ${off}`);
      }
    }
  }
});

/** The losses of evaluations of a run. */
async function evaluations(options: Partial<TrainOptions>): Promise<number[]> {
  const sizes = { ...SIZES, steps: 2 }, batches = batchesOf(sizes), losses: number[] = [];
  const run = train({
    ...{ model: gpt2(sizes, sizes.microBatch), data: batches, steps: 2, workers: 2 },
    ...{ microBatches: sizes.microBatches, device: "native" },
    evaluation: { batches: batches.slice(0, 3), every: 1 },
    ...options,
  });
  for await (const event of run) if (event.type === "evaluation") losses.push(event.loss);
  return losses;
}

Deno.test("an evaluation has the loss of whole sequences, and the bits of the serial run", async () => {
  const options = { schedule: "seq1f1b", scheduleOptions: { slices: 4 } } as const;
  const run = await evaluations({ ...options, runtime: "local" });
  assert.deepEqual(run, await evaluations({ ...options, runtime: "serial" }));
  const whole = await evaluations({ runtime: "serial" });
  assert.equal(run.length, 2);
  for (const [i, loss] of run.entries()) assert.ok(Math.abs(loss / whole[i]! - 1) <= 1e-5);
});

const DEVICES: readonly Case[] = [
  { device: "wasm" },
  { device: "reference" },
  { device: "native", precision: "fp16", lossScale: 1024 },
];

Deno.test("slices have the serial bits on every device, and in FP16", async () => {
  const sizes = { ...SIZES, seq: 8, steps: 2, tie: true };
  await fewAtATime(DEVICES, async (one) => {
    const options = { schedule: "seq1f1b", scheduleOptions: { slices: 2 }, workers: 2, ...one };
    const run = await outcome(sizes, { ...options, runtime: "local", link: DELAYS } as Case);
    const serial = await outcome(sizes, { ...options, runtime: "serial" } as Case);
    assert.deepEqual(run.bits, serial.bits, JSON.stringify(one));
  });
});

const CSV = "0F0s0,0F0s1,0F1s0,0F1s1,0B0s1,0B0s0,0B1s1,0B1s0\n" +
  "1F0s0,1F0s1,1B0s1,1B0s0,1F1s0,1F1s1,1B1s1,1B1s0\n";

Deno.test("a last step with fewer micro-batches than the lists are for has the serial bits, too", async () => {
  const schedule = scheduleFromLists("mine", parseCsv(CSV)), steps = 2;
  const sizes = { ...SIZES, microBatches: 2, steps }, data = batchesOf(sizes, 3);
  const options = { device: "native", workers: 2, schedule, data } as const;
  const run = await outcome(sizes, { ...options, runtime: "local" });
  assert.deepEqual(run.bits, (await outcome(sizes, { ...options, runtime: "serial" })).bits);
});

Deno.test("slices that cannot be are refused before anything runs", async () => {
  const refused = (options: Partial<TrainOptions>, message: RegExp) =>
    assert.rejects(() => outcome(SIZES, { workers: 2, device: "native", ...options }), message);
  const schedule = "seq1f1b";
  await refused(
    { schedule, scheduleOptions: { slices: 3 } },
    /^RangeError: Cannot cut GPT-2 into slices: the 16 tokens of a sample must be divisible by their number, received 3$/,
  );
  await refused(
    {
      ...{ schedule, scheduleOptions: { slices: 2 } },
      model: mlp({ inputs: 2, hidden: 4, layers: 2, classes: 3 }, 2),
    },
    /^TypeError: Cannot cut sequences into 2 slices: the model must have sequences, .* received mlp without withSlices$/,
  );
  const halves = lists(
    seq1f1b(2, 2),
    (order) =>
      [...order].flatMap((action) =>
        action.kind === "F" ? [action] : [{ ...action, half: 0 }, { ...action, half: 1 }]
      ),
  );
  await refused(
    { schedule: halves },
    /^RangeError: Cannot train with the schedule mine: it halves micro-batches, so sequences must be whole, received 2 slices$/,
  );
  const extra = batchesOf(SIZES).map((batch) => ({ ...batch, names: new Int32Array(3) }));
  await refused(
    { schedule, scheduleOptions: { slices: 2 }, data: extra },
    /the field "names" must be divisible by 4, received 3 elements/,
  );
});

Deno.test("a worker that fails between two slices is started again, and the weights have the same bits", async () => {
  const inSlices = { schedule: "seq1f1b", scheduleOptions: { slices: 4 } } as const;
  const options = { device: "native", workers: 2, ...inSlices } as const;
  const { bits } = await outcome(SIZES, { ...options, runtime: "serial" });
  const fault = { worker: 1, afterActions: 35, kind: "throw" } as const;
  assert.deepEqual((await outcome(SIZES, { ...options, faults: [fault] })).bits, bits);
});
