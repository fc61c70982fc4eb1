/**
 * Sequences in slices train: losses, norms and weights have the bits of the serial run of the same
 * slicing, whoever computes which slice when, and are near those of whole sequences.
 */

import assert from "node:assert/strict";
import { mlp } from "../../../kernels/mod.ts";
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
import { batchesOf, fewAtATime, type Sizes } from "../runs.ts";
import {
  assertNear,
  assertRefused,
  DELAYS,
  openOracle,
  type Options,
  scheduleOf,
  TINY,
  trained,
} from "./trained.ts";

const SIZES: Sizes = { ...TINY, layers: 2, seq: 16, tie: true };

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

/** Two pipes in opposite directions, each as GPipe has it. */
const gpipeOfSlices = (slices: number) =>
  defineSchedule({
    name: "two pipes of slices",
    summary: "forwards first slice first, then backwards last slice first",
    place: ({ workers }) => ({
      ...{ stages: workers, slices, replicas: 2 },
      workerOf: (stage: number, replica: number) => replica === 0 ? stage : workers - 1 - stage,
      replicaOf: (microBatch: number) => microBatch % 2,
    }),
    order(worker, { workers, microBatches }) {
      const parts = Array.from({ length: microBatches * slices }, (_, i) => i);
      const held = (m: number) => m % 2 === 0 ? worker : workers - 1 - worker;
      return [F, B].flatMap((kind) =>
        (kind === F ? parts : parts.map((i) => i + slices - 1 - 2 * (i % slices))).map((i) => {
          const m = Math.floor(i / slices);
          return sliced(kind(held(m), m), i % slices);
        })
      );
    },
  });

/** Of the first stage each backward with an R before it. */
const broughtBack = (order: Iterable<Action>) =>
  [...order].flatMap((action): Action[] =>
    action.kind === "B" && action.stage === 0 ? [{ ...action, kind: "R" }, action] : [action]
  );

const ON_LINKS: Options = { link: DELAYS };

/** Of the same slices, what the serial run has, and how the actors run. */
const CASES: readonly (readonly [what: string, shared: Options, how?: Options])[] = [
  ["in two replicas", { scheduleOptions: { slices: 4 }, replicas: 2 }, { link: DELAYS }],
  [
    "on three workers",
    { scheduleOptions: { slices: 2 }, workers: 3 },
    { link: DELAYS, sync: "eager", bucketSize: 200 },
  ],
  ["weights apart", { schedule: lists(seq1f1b(2, 4), (order) => split(order, 2)) }, ON_LINKS],
  [
    "weights soon, recomputed",
    { schedule: lists(seq1f1b(2, 2), (order) => split(order, 1)) },
    { recomputeInterval: 1 },
  ],
  ["brought back by actions", { schedule: lists(seq1f1b(2, 4), broughtBack) }, ON_LINKS],
  ["two pipes", { schedule: gpipeOfSlices(4) }, { runtime: "workers" }],
  ["followed elastically", { scheduleOptions: { slices: 4 } }, { policy: "elastic", link: DELAYS }],
  ["seq1f1b-zb", { schedule: "seq1f1b-zb", scheduleOptions: { slices: 2 }, workers: 3 }],
  ["in threads", { scheduleOptions: { slices: 2 } }, { runtime: "workers", recompute: "cheap" }],
  ["wasm", { scheduleOptions: { slices: 2 }, device: "wasm", steps: 1 }],
  ["reference", { scheduleOptions: { slices: 2 }, device: "reference", steps: 1 }],
  ["fp16", { scheduleOptions: { slices: 2 }, precision: "fp16", lossScale: 1024 }],
  ["evaluations", {
    scheduleOptions: { slices: 4 },
    evaluation: { batches: batchesOf(SIZES).slice(0, 3), every: 1 },
  }],
];

Deno.test("slices have the bits of their serial run, whatever the schedule, the device and the delays", async () => {
  const oracle = openOracle(SIZES);
  await fewAtATime(CASES, async ([what, shared, how]) => {
    await oracle(what, { schedule: "seq1f1b", workers: 2, ...shared }, how);
  });
});

Deno.test("every schedule of slices that comes with the package has the bits of its serial run", async () => {
  const names = scheduleDefinitions.filter(({ name, reads }) =>
    name !== "search" && reads?.includes("slices")
  ).map(({ name }) => name);
  assert.ok(names.length >= 4, `${names}`);
  const oracle = openOracle(SIZES), options = { workers: 2, scheduleOptions: { slices: 4 } };
  await fewAtATime(names, async (schedule) => {
    // All add the gradients of slices in one order.
    const { end } = await oracle("all", { ...options, schedule }, { link: DELAYS });
    const { made } = scheduleOf({ ...options, schedule }, SIZES.microBatches);
    assert.deepEqual(end.peakActivations, analyze(made).peakActivations, schedule);
  });
});

Deno.test("slices have the losses and norms of whole sequences, evaluated too, within 1e-5 over several steps", async () => {
  const sizes = { ...SIZES, steps: 6 };
  const evaluation = { batches: batchesOf(sizes).slice(0, 3), every: 3 };
  const whole = await trained(sizes, { runtime: "serial", evaluation });
  for (const slices of [2, 4, 16]) {
    const { bits } = await trained(sizes, {
      ...{ runtime: "local", workers: 2, evaluation },
      ...{ schedule: "seq1f1b", scheduleOptions: { slices } },
    });
    assertNear(bits.numbers.flat(), whole.bits.numbers.flat(), 1e-5, `${slices} slices`);
  }
});

const CSV = "0F0s0,0F0s1,0F1s0,0F1s1,0B0s1,0B0s0,0B1s1,0B1s0\n" +
  "1F0s0,1F0s1,1B0s1,1B0s0,1F1s0,1F1s1,1B1s1,1B1s0\n";

Deno.test("a last step with fewer micro-batches than the lists are for has the serial bits, too", async () => {
  const schedule = scheduleFromLists("mine", parseCsv(CSV)), sizes = { ...SIZES, microBatches: 2 };
  await openOracle(sizes)("mine", { workers: 2, schedule, data: batchesOf(sizes, 3) });
});

const inHalves = (action: Action): Action[] =>
  action.kind === "F" ? [action] : [{ ...action, half: 0 }, { ...action, half: 1 }];

Deno.test("slices that cannot be are refused before anything runs", async () => {
  const sliced = { schedule: "seq1f1b", workers: 2, scheduleOptions: { slices: 2 } };
  await assertRefused("slices", SIZES, {
    "three slices of 16 tokens": { ...sliced, scheduleOptions: { slices: 3 } },
    "no sequences": { ...sliced, model: mlp({ inputs: 2, hidden: 4, layers: 2, classes: 3 }, 2) },
    "halves": {
      workers: 2,
      schedule: lists(seq1f1b(2, 2), (order) => [...order].flatMap(inHalves)),
    },
    "a field that cannot be cut": {
      ...sliced,
      data: batchesOf(SIZES).map((batch) => ({ ...batch, names: new Int32Array(3) })),
    },
  });
});

Deno.test("a worker that fails between two slices is started again, and the weights have the same bits", async () => {
  const options = { workers: 2, schedule: "seq1f1b", scheduleOptions: { slices: 4 } };
  const fault = { worker: 1, afterActions: 35, kind: "throw" } as const;
  await openOracle(SIZES)("fault", options, { runtime: "workers", faults: [fault] });
});
