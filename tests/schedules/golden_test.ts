import assert from "node:assert/strict";
import {
  createSchedule,
  formatCsv,
  parseCsv,
  scheduleFromLists,
  scheduleNames,
  type ScheduleOptions,
  validate,
  withLists,
} from "../../schedules/mod.ts";

const FOUR = { workers: 4, microBatches: 8 } as const;

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
  Deno.test(`the order of ${file} is the one on file`, async () => {
    const path = new URL(`../golden/schedules/${file}.csv`, import.meta.url);
    const text = await Deno.readTextFile(path);
    assert.equal(formatCsv(withLists(createSchedule(name, options)).lists), text);
    assert.deepEqual(validate(scheduleFromLists(name, parseCsv(text))), []);
  });
}
