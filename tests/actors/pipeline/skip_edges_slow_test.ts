/**
 * Models with skip edges train: losses, norms and weights have the bits of the serial run, wherever
 * the model is cut.
 */

import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { createSchedule, type Schedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { compileRun } from "../../../actors/run/compile.ts";
import { groupingOf, once, trained } from "../runs.ts";
import { inLanes } from "../../lanes.ts";
import { batches, SKIPPING } from "./skipping_model.ts";

type Options = Partial<TrainOptions> & { readonly schedule: string };

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

const run = async (options: Options) =>
  (await trained({ model: SKIPPING, steps: 2, microBatches: 8, data: batches(), ...options })).bits;

const serialOf = once((_grouping: string, options: Options) =>
  run({ ...options, runtime: "serial" })
);

async function assertSerialBits({ schedule: name, ...asked }: Options): Promise<void> {
  const { workers = 4, replicas = 1, device = "reference", scheduleOptions } = asked;
  const schedule = createSchedule(name, { ...scheduleOptions, workers, microBatches: 8 });
  const isFlushed = schedule.updates === "flush";
  const options = { ...asked, schedule: name, ...isFlushed && { clip: 1 }, device, workers };
  const grouping = isFlushed ? groupingOf(schedule as Schedule, replicas) : name;
  const serial = await serialOf(`${device} ${grouping}`, options);
  const bits = await run({ ...options, runtime: "local", link: DELAYS });
  assert.deepEqual(bits, serial, JSON.stringify(options));
}

const NAMES = scheduleDefinitions.map(({ name }) => name);
const CASES: readonly Options[] = [
  ...NAMES.map((schedule) => ({ schedule })),
  { schedule: "chimera", scheduleOptions: { scale: "doubling" } },
  { schedule: "chimera", scheduleOptions: { scale: "halving" } },
  { schedule: "chimera", workers: 2, replicas: 2 },
  { schedule: "hanayo", workers: 2, device: "native" },
];

Deno.test(`records and skip edges have the bits of the serial run under each of the ${NAMES.length} schedules`, () =>
  inLanes(CASES, assertSerialBits));

Deno.test("a skip edge carries a named output, and its gradient passes from user to user", () => {
  const schedule = createSchedule("gpipe", { workers: 5, microBatches: 1 });
  const { programs, model } = compileRun({ model: SKIPPING }, schedule);
  const edges = programs.flatMap(({ skips = [] }, stage) =>
    skips.map(({ key, ...edge }) => ({ stage, name: key.slice("skip.".length), ...edge }))
  );
  assert.deepEqual(edges.filter(({ name }) => name === "scale" || name === "count"), [
    { stage: 0, name: "scale", to: [1, 3, 4], gradientFrom: 1 },
    { stage: 0, name: "count", to: [4] },
    { stage: 1, name: "scale", from: 0, to: [], gradientFrom: 3, gradientTo: 0 },
    { stage: 3, name: "scale", from: 0, to: [], gradientFrom: 4, gradientTo: 1 },
    { stage: 4, name: "scale", from: 0, to: [], gradientTo: 3 },
    { stage: 4, name: "count", from: 0, to: [] },
  ]);
  assert.equal(cutIntoStages(model, 1)[0]!.skips, undefined);
});
