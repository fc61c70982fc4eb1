/**
 * Models that are no chain train: under every schedule losses, norms and weights have the bits of the
 * serial run, wherever the model is cut.
 */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { cutIntoStages, type DeviceName } from "../../../kernels/mod.ts";
import { createSchedule, type Schedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { fewAtATime, groupingOf, once, sideBySide } from "../runs.ts";
import { batches, SKIPPING } from "./skipping_model.ts";

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

const N = 8;

async function bitsOf(options: Partial<TrainOptions>): Promise<unknown> {
  const losses: number[] = [], norms: number[] = [];
  const run = train({
    model: SKIPPING,
    data: batches(),
    steps: 3,
    microBatches: N,
    ...options,
  });
  for await (const event of run) {
    if (event.type === "step") losses.push(event.loss), norms.push(event.gradNorm);
    if (event.type === "end") return { losses, norms, hash: event.weightsHash };
  }
}

const serialOf = once((_grouping: string, options: Partial<TrainOptions>) =>
  bitsOf({ ...options, runtime: "serial" })
);

/** Those that cut sequences, which these models have not; and those without flushes have a loop of their own. */
const NAMES = scheduleDefinitions.map(({ name }) => name)
  .filter((name) => !/seq1f1b|terapipe|slimpipe/.test(name));

/** Ways to say which micro-batches wait. */
const VARIANTS: Record<string, TrainOptions["scheduleOptions"][]> = {
  chimera: [{}, { scale: "doubling" }, { scale: "halving" }],
};

async function assertSerialBits(
  name: string,
  more: Partial<TrainOptions>,
  device: DeviceName,
  scheduleOptions: TrainOptions["scheduleOptions"] = {},
): Promise<void> {
  const { workers = 4, replicas = 1 } = more, options = { workers, microBatches: N };
  const schedule = createSchedule(name, { ...scheduleOptions, ...options });
  const what = `${name} ${JSON.stringify(scheduleOptions)} on ${device}`;
  const clip = schedule.updates === "flush" ? { clip: 1 } : {};
  const run = { ...more, ...clip, device, workers, schedule: name, scheduleOptions };
  const grouping = schedule.updates === "flush" ? groupingOf(schedule as Schedule, replicas) : name;
  const key = JSON.stringify([device, grouping, more.precision]);
  assert.deepEqual(
    await bitsOf({ ...run, runtime: "local", link: DELAYS }),
    await serialOf(key, run),
    what,
  );
}

for (const device of ["native", "wasm"] as const) {
  Deno.test(`records and skip edges have the bits of the serial run under every schedule, on ${device}`, async () => {
    const names = device === "native" ? NAMES : ["message-driven", "chimera", "hanayo", "zb-v"];
    const cases = names.flatMap((name) =>
      (VARIANTS[name] ?? [{}]).map((variant) => ({ name, variant }))
    );
    await fewAtATime(cases, ({ name, variant }) => assertSerialBits(name, {}, device, variant));
  });

  Deno.test(`so they have in two replicas and on two workers, on ${device}`, () =>
    sideBySide([
      assertSerialBits("1f1b", { replicas: 2 }, device),
      assertSerialBits("zb-h1", { workers: 2 }, device),
      assertSerialBits("chimera", { workers: 2, replicas: 2 }, device),
    ]));
}

Deno.test("and in FP16, with activations computed again, and with both", () =>
  sideBySide([
    assertSerialBits("1f1b", { precision: "fp16" }, "native"),
    assertSerialBits("1f1b", { recomputeInterval: 1 }, "native"),
    assertSerialBits("zb-h1", { recomputeInterval: 2 }, "native"),
    assertSerialBits("zb-v", { recomputeInterval: 1, precision: "fp16" }, "native"),
    assertSerialBits("hanayo", { recompute: "full" }, "native"),
  ]));

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
