/**
 * Models with skip edges train: losses, norms and weights have the bits of the serial run, wherever
 * the model is cut.
 */

import assert from "node:assert/strict";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { createSchedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { compileRun } from "../../../actors/run/compile.ts";
import { inLanes } from "../../lanes.ts";
import { batch, SKIPPING } from "./skipping_model.ts";
import { DELAYS, openOracle, type Options, scheduleOf, TINY } from "./trained.ts";

type Case = Options & { readonly schedule: string };

const DATA = Array.from({ length: 64 }, (_, i) => batch(i));
const oracle = openOracle({ ...TINY, steps: 2, microBatches: 8 });

async function assertSerialBits(asked: Case): Promise<void> {
  const run: Options = { device: "reference", workers: 4, ...asked };
  const { made, grouping } = scheduleOf(run, 8), isFlushed = made.updates === "flush";
  const options = { ...run, model: SKIPPING, data: DATA, ...isFlushed && { clip: 1 } };
  await oracle(`${run.device} ${grouping}`, options, { link: DELAYS });
}

const NAMES = scheduleDefinitions.map(({ name }) => name);
const CASES: readonly Case[] = [
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
