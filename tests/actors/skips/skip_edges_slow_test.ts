/**
 * Models that are no chain train: losses, norms and weights have the bits of the serial run, wherever
 * the model is cut.
 */

import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/mod.ts";
import { cutIntoStages } from "../../../kernels/mod.ts";
import { createSchedule, type Schedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { fewAtATime, groupingOf, once, trained } from "../runs.ts";
import { batches, SKIPPING } from "./skipping_model.ts";

type Options = Partial<TrainOptions> & { readonly schedule: string };

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

const MODEL = { model: SKIPPING, steps: 2, microBatches: 8 };

const serialOf = once((_grouping: string, options: Options) =>
  trained({ ...MODEL, ...options, data: batches(), runtime: "serial" })
);

async function assertSerialBits(asked: Options): Promise<void> {
  const { workers = 4, replicas = 1, device = "native", schedule: name, scheduleOptions = {} } =
    asked;
  const schedule = createSchedule(name, { ...scheduleOptions, workers, microBatches: 8 });
  const isFlushed = schedule.updates === "flush";
  const options = { ...asked, ...isFlushed && { clip: 1 }, device, workers };
  const grouping = isFlushed ? groupingOf(schedule as Schedule, replicas) : name;
  const serial = await serialOf(JSON.stringify([device, grouping, asked.precision]), options);
  const run = await trained({
    ...{ ...MODEL, ...options, data: batches(), runtime: "local", link: DELAYS },
  });
  assert.deepEqual(run.bits, serial.bits, JSON.stringify(asked));
}

const NAMES = scheduleDefinitions.map(({ name }) => name);
const SCALES = (["doubling", "halving"] as const)
  .map((scale) => ({ schedule: "chimera", scheduleOptions: { scale } }));

Deno.test(`records and skip edges have the bits of the serial run under each of the ${NAMES.length} schedules`, () =>
  fewAtATime([...NAMES.map((schedule) => ({ schedule })), ...SCALES], assertSerialBits));

Deno.test("slices of sequences are refused for a model that has no sequences", async () => {
  for (const schedule of ["seq1f1b", "seq1f1b-zb", "terapipe", "slimpipe"]) {
    const cut = { schedule, scheduleOptions: { slices: 2 }, workers: 2 };
    await assert.rejects(trained({ ...MODEL, ...cut, data: batches() }), /^\w+Error: .*slices/);
  }
});

for (
  const [what, cases] of [
    [
      "with WebAssembly under hanayo, zb-v and message-driven",
      ["hanayo", "zb-v", "message-driven"]
        .map((schedule) => ({ schedule, workers: 2, device: "wasm" as const })),
    ],
    ["in two replicas and on two workers", [
      { schedule: "1f1b", replicas: 2 },
      { schedule: "zb-h1", workers: 2 },
      { schedule: "chimera", workers: 2, replicas: 2 },
    ]],
    ["in FP16, with activations computed again, and with both", [
      { schedule: "1f1b", precision: "fp16" },
      { schedule: "1f1b", recomputeInterval: 1 },
      { schedule: "zb-h1", recomputeInterval: 2 },
      { schedule: "zb-v", recomputeInterval: 1, precision: "fp16" },
      { schedule: "hanayo", recompute: "full" },
    ]],
  ] satisfies [string, Options[]][]
) {
  Deno.test(`records and skip edges have the bits of the serial run ${what}`, () =>
    fewAtATime<Options>(cases, assertSerialBits));
}

Deno.test("over a skip edge goes what is given by name, and its gradient from user to user", () => {
  const schedule = createSchedule("gpipe", { workers: 5, microBatches: 1 });
  const { programs } = compileRun({ model: SKIPPING }, schedule);
  assert.deepEqual(
    programs.flatMap(({ skips = [] }, stage) =>
      skips.map(({ key, ...edge }) => ({ stage, name: key.slice("skip.".length), ...edge }))
    ).filter(({ name }) => name === "scale" || name === "count"),
    [
      { stage: 0, name: "scale", to: [1, 3, 4], gradientFrom: 1 },
      { stage: 0, name: "count", to: [4] },
      { stage: 1, name: "scale", from: 0, to: [], gradientFrom: 3, gradientTo: 0 },
      { stage: 3, name: "scale", from: 0, to: [], gradientFrom: 4, gradientTo: 1 },
      { stage: 4, name: "scale", from: 0, to: [], gradientTo: 3 },
      { stage: 4, name: "count", from: 0, to: [] },
    ],
  );
  assert.deepEqual(
    cutIntoStages(compileRun({ model: SKIPPING }, schedule).model, 1)[0]!.skips,
    undefined,
  );
});
