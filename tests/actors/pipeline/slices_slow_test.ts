/**
 * Sequences in slices train: losses, norms and weights have the bits of the serial run of the same
 * slicing under every schedule, and are near those of whole sequences.
 */

import assert from "node:assert/strict";
import { mlp } from "../../../kernels/mod.ts";
import {
  type Action,
  ActionList,
  analyze,
  createSchedule,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  withLists,
} from "../../../schedules/mod.ts";
import { batchesOf, type Sizes } from "../runs.ts";
import { inLanes } from "../../lanes.ts";
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

const lists = (schedule: Schedule, change: (order: Iterable<Action>) => Action[]) =>
  scheduleFromLists("mine", withLists(schedule).lists.map((list) => ActionList.from(change(list))));

const seq1f1b = (workers: number, slices: number) =>
  createSchedule("seq1f1b", { workers, slices, microBatches: SIZES.microBatches });

/** Returns the backwards of the first stage that have an R before them. */
const broughtBack = (order: Iterable<Action>) =>
  [...order].flatMap((action): Action[] =>
    action.kind === "B" && action.stage === 0 ? [{ ...action, kind: "R" }, action] : [action]
  );

/** Runs with equal slices: the options of the serial run, and those of the actors. */
const CASES: readonly (readonly [what: string, shared: Options, how?: Options])[] = [
  [
    "in two replicas",
    { scheduleOptions: { slices: 4 }, replicas: 2 },
    { sync: "eager", bucketSize: 200 },
  ],
  [
    "weights apart, recomputed",
    { schedule: "seq1f1b-zb", scheduleOptions: { slices: 4 } },
    { recomputeInterval: 1 },
  ],
  ["brought back by actions", { schedule: lists(seq1f1b(2, 4), broughtBack) }],
  ["in threads", { scheduleOptions: { slices: 4 } }, { policy: "elastic", runtime: "workers" }],
  ["fp16", { scheduleOptions: { slices: 2 }, precision: "fp16", lossScale: 1024, workers: 3 }],
  ["evaluations", {
    scheduleOptions: { slices: 4 },
    evaluation: { batches: batchesOf(SIZES).slice(0, 3), every: 1 },
  }],
];

Deno.test("slices have the bits of their serial run, whatever the schedule and the delays", async () => {
  const oracle = openOracle(SIZES);
  await inLanes(CASES, async ([what, shared, how]) => {
    await oracle(what, { schedule: "seq1f1b", workers: 2, ...shared }, { link: DELAYS, ...how });
  });
});

Deno.test("every schedule of slices that comes with the package has the bits of its serial run", async () => {
  const names = scheduleDefinitions.filter(({ name, reads }) =>
    name !== "search" && reads?.includes("slices")
  ).map(({ name }) => name);
  assert.ok(names.length >= 4, `${names}`);
  const oracle = openOracle(SIZES), options = { workers: 2, scheduleOptions: { slices: 4 } };
  await inLanes(names, async (schedule) => {
    // All schedules add the gradients of slices in the same order.
    const { end } = await oracle("all", { ...options, schedule }, { link: DELAYS });
    const { made } = scheduleOf({ ...options, schedule }, SIZES.microBatches);
    assert.deepEqual(end.peakActivations, analyze(made).peakActivations, schedule);
  });
});

Deno.test("slices have the losses and norms of whole sequences, evaluated too, within 1e-5 over several steps", async () => {
  const sizes = { ...SIZES, steps: 3 };
  const evaluation = { batches: batchesOf(sizes).slice(0, 3), every: 2 };
  const whole = await trained(sizes, { runtime: "serial", evaluation });
  for (const slices of [2, 16]) {
    const { bits } = await trained(sizes, {
      ...{ runtime: "local", workers: 2, evaluation },
      ...{ schedule: "seq1f1b", scheduleOptions: { slices } },
    });
    assertNear(bits.numbers.flat(), whole.bits.numbers.flat(), 1e-5, `${slices} slices`);
  }
});

Deno.test("slices that cannot be are refused before anything runs", async () => {
  const sliced = { schedule: "seq1f1b", workers: 2, scheduleOptions: { slices: 2 } };
  await assertRefused("slices", SIZES, {
    "three slices of 16 tokens": { ...sliced, scheduleOptions: { slices: 3 } },
    "no sequences": { ...sliced, model: mlp({ inputs: 2, hidden: 4, layers: 2, classes: 3 }, 2) },
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
