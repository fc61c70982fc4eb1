import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  analyze,
  createSchedule,
  formatCsv,
  parseCsv,
  scheduleFromLists,
  scheduleNames,
  type ScheduleOptions,
  validate,
  withLists,
} from "../../schedules/mod.ts";
import { atDepth } from "../depth.ts";
import { FOUR, golden, made } from "./cases.ts";

/**
 * The file of each order, and what makes it. That an order is right is tested elsewhere; this says
 * that it changes on purpose only, as weights and traces depend on it.
 */
const GOLDEN: Readonly<Record<string, readonly [name: string, options: ScheduleOptions]>> = {
  ...Object.fromEntries(scheduleNames().map((name) => [name, [name, FOUR]])),
  "chimera-doubling": ["chimera", { ...FOUR, scale: "doubling" }],
  "chimera-halving": ["chimera", { ...FOUR, microBatches: 4, scale: "halving" }],
  "chimera-two-pipelines": ["chimera", { workers: 8, microBatches: 8, pipelines: 2 }],
  "seq1f1b-two-slices": ["seq1f1b", { ...FOUR, slices: 2 }],
  "seq1f1b-zb-two-slices": ["seq1f1b-zb", { ...FOUR, slices: 2 }],
  "terapipe-two-slices": ["terapipe", { ...FOUR, slices: 2 }],
  "slimpipe-two-slices": ["slimpipe", { ...FOUR, slices: 2 }],
  "slimpipe-eight-slices": ["slimpipe", { ...FOUR, microBatches: 2, slices: 8 }],
  "hanayo-two-waves": ["hanayo", { workers: 2, microBatches: 4, waves: 2 }],
};

for (const [file, [name, options]] of Object.entries(GOLDEN)) {
  // What a search finds may change with the search.
  if (name === "search") continue;
  Deno.test(`the order of ${file} is the one on file`, () => {
    const text = golden(`${file}.csv`);
    assert.equal(formatCsv(withLists(createSchedule(name, options)).lists), text);
    assert.deepEqual(validate(scheduleFromLists(name, parseCsv(text))), []);
  });
}

const { sha256 } = JSON.parse(golden("torch-orders.json")) as {
  sha256: Record<string, Record<string, string>>;
};

for (const [name, hashes] of Object.entries(sha256)) {
  Deno.test(`${name} serves what PyTorch serves, in PyTorch's order, up to 8 workers and 32 micro-batches`, () => {
    for (const [workers, expected] of Object.entries(hashes)) {
      const hash = createHash("sha256");
      for (let microBatches = 1; microBatches <= 32; microBatches++) {
        for (const chunks of name === "zb-v" ? [undefined] : [2, 3, 4]) {
          const schedule = made({
            name,
            options: { workers: Number(workers), microBatches, chunks },
          });
          if (schedule === undefined) continue;
          const key = [name, workers, microBatches, ...chunks ? [chunks] : []].join(" ");
          hash.update(`${key}\n${formatCsv(withLists(schedule).lists)}`);
        }
      }
      assert.equal(hash.digest("hex"), expected, `${name} on ${workers} workers`);
    }
  });
}

/** V-Half and V-Min against the figures of their authors' code. */

type Row = [string, number, number, number, number, number, number, number];

const { rows } = JSON.parse(golden("../../fixtures/schedules/v_half_v_min.json")) as {
  rows: Row[];
};
/** Durations are of both stages of a worker, the peak is in (stage, micro-batch). */
const settings = rows.map(([name, workers, microBatches, F, I, W, makespan, peak]) => {
  const costs = { forward: 2 * F, input: 2 * I, weight: 2 * W };
  return { name, workers, microBatches, costs, makespan, peak };
});
type Setting = typeof settings[number];

const [equal, others] = [true, false].map((isEqual) =>
  settings.filter(({ costs }) => (new Set(Object.values(costs)).size === 1) === isEqual)
) as [Setting[], Setting[]];

function measured(setting: Setting, name = setting.name) {
  const { workers, microBatches, peak, costs } = setting;
  const limit = name === "search" ? { activationLimit: peak / 2 } : {};
  const schedule = createSchedule(name, { workers, microBatches, costs, ...limit });
  const { makespan, peakActivations } = analyze(schedule, costs);
  return { makespan, peak: 2 * Math.max(...peakActivations) };
}

function assertAsGood(setting: Setting, { makespan, peak }: ReturnType<typeof measured>) {
  assert.ok(makespan <= setting.makespan + 1e-9, `${makespan}: ${JSON.stringify(setting)}`);
  assert.ok(peak <= setting.peak, `holds ${peak}: ${JSON.stringify(setting)}`);
}

Deno.test("V-Half and V-Min take no longer than their authors' and hold no more, at equal times", () => {
  assert.ok(equal.length >= 84);
  for (const setting of equal) assertAsGood(setting, measured(setting));
});

Deno.test("so do they at other times, or search does within the same memory", () => {
  let searched = 0;
  const some = others.filter((_, i) => i % atDepth(4, 1) === 0);
  for (const setting of some) {
    const found = measured(setting), isLonger = found.makespan > setting.makespan;
    searched += Number(isLonger);
    assertAsGood(setting, isLonger ? measured(setting, "search") : found);
  }
  assert.ok(searched <= some.length / 10, `${searched} of ${some.length} are longer by rule`);
});
