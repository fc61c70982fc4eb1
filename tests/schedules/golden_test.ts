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
import { made } from "./cases.ts";

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

const golden = (file: string) => new URL(`../golden/schedules/${file}`, import.meta.url);

/** Orders that PyTorch made, to be read; the hashes have all others. */
const FILES: readonly [file: string, name: string, options: ScheduleOptions][] = [
  ["interleaved-4-workers-10-micro-batches", "interleaved", { workers: 4, microBatches: 10 }],
  [
    "interleaved-zb-4-workers-6-micro-batches-3-chunks",
    "interleaved-zb",
    { workers: 4, microBatches: 6, chunks: 3 },
  ],
  ["zb-v-4-workers-5-micro-batches", "zb-v", { workers: 4, microBatches: 5 }],
];

for (const [file, name, options] of FILES) {
  Deno.test(`${name} ${JSON.stringify(options)} has the order that PyTorch gives it`, async () => {
    const { lists } = withLists(createSchedule(name, options));
    assert.equal(formatCsv(lists), await Deno.readTextFile(golden(`torch-${file}.csv`)));
  });
}

const { sha256 } = JSON.parse(Deno.readTextFileSync(golden("torch-orders.json"))) as {
  sha256: Record<string, Record<string, string>>;
};

for (const [name, hashes] of Object.entries(sha256)) {
  Deno.test(`${name} serves what PyTorch serves, in PyTorch's order, up to 8 workers and 32 micro-batches`, () => {
    for (const [workers, expected] of Object.entries(hashes)) {
      const hash = createHash("sha256");
      for (let microBatches = 1; microBatches <= 32; microBatches++) {
        for (const chunks of name === "zb-v" ? [undefined] : [2, 3, 4]) {
          const options = { workers: Number(workers), microBatches, chunks };
          const schedule = made({ name, options });
          if (schedule === undefined) continue;
          const key = [name, workers, microBatches, chunks].filter((part) => part !== undefined);
          hash.update(`${key.join(" ")}\n${formatCsv(withLists(schedule).lists)}`);
        }
      }
      assert.equal(hash.digest("hex"), expected, `${name} on ${workers} workers`);
    }
  });
}

Deno.test("interleaved zero bubble at D activations takes 50.33 on 8 workers, 16 micro-batches, 3 chunks", () => {
  const options = { workers: 8, microBatches: 16, chunks: 3 };
  const { makespan, peakActivations } = analyze(createSchedule("interleaved-zb", options));
  assert.equal(makespan.toFixed(2), "50.33");
  assert.deepEqual(peakActivations, Array(8).fill(8));
});

/** V-Half and V-Min against the figures of their authors' code. */

interface Setting {
  readonly name: string;
  readonly workers: number;
  readonly microBatches: number;
  /** Durations of one of the two stages of a worker. */
  readonly times: readonly [forward: number, input: number, weight: number];
  readonly makespan: number;
  /** In (stage, micro-batch). */
  readonly peak: number;
}

type Row = [string, number, number, number, number, number, number, number];

const file = new URL("../fixtures/schedules/v_half_v_min.json", import.meta.url);
const { rows } = JSON.parse(await Deno.readTextFile(file)) as { rows: Row[] };
const settings = rows.map(([name, workers, microBatches, ...rest]): Setting => {
  const [forward, input, weight, makespan, peak] = rest;
  return { name, workers, microBatches, times: [forward, input, weight], makespan, peak };
});
const isEqual = ({ times: [forward, input, weight] }: Setting) =>
  forward === input && input === weight;

/** The times of a worker's two stages. */
function costsOf({ times: [forward, input, weight] }: Setting) {
  return { forward: 2 * forward, input: 2 * input, weight: 2 * weight };
}

function measured(setting: Setting, name = setting.name) {
  const { workers, microBatches, peak } = setting, costs = costsOf(setting);
  const limit = name === "search" ? { activationLimit: peak / 2 } : {};
  const schedule = createSchedule(name, { workers, microBatches, costs, ...limit });
  const { makespan, peakActivations } = analyze(schedule, costs);
  return { makespan, peak: 2 * Math.max(...peakActivations) };
}

Deno.test("V-Half and V-Min take no longer than their authors' and hold no more, at equal times", () => {
  const equal = settings.filter(isEqual);
  assert.ok(equal.length >= 84);
  for (const setting of equal) {
    const { makespan, peak } = measured(setting);
    assert.ok(makespan <= setting.makespan, `${makespan}: ${JSON.stringify(setting)}`);
    assert.ok(peak <= setting.peak, `holds ${peak}: ${JSON.stringify(setting)}`);
  }
});

Deno.test("so do they at other times, or search does within the same memory", () => {
  const others = settings.filter((setting) => !isEqual(setting));
  let searched = 0;
  for (const setting of others) {
    let found = measured(setting);
    if (found.makespan > setting.makespan) {
      found = measured(setting, "search");
      searched++;
    }
    const { makespan, peak } = found;
    assert.ok(makespan <= setting.makespan + 1e-9, `${makespan}: ${JSON.stringify(setting)}`);
    assert.ok(peak <= setting.peak, `holds ${peak}: ${JSON.stringify(setting)}`);
  }
  assert.ok(searched <= others.length / 10, `${searched} of ${others.length} are longer by rule`);
});

Deno.test("V-Half and V-Min take the times that their authors' take", () => {
  const time = (name: string, workers: number, microBatches: number) =>
    2 * analyze(createSchedule(name, { workers, microBatches })).makespan;
  assert.equal(time("v-half", 4, 8), 53);
  assert.equal(time("v-half", 8, 16), 113);
  assert.equal(time("v-half", 8, 24), 161);
  assert.equal(time("v-min", 3, 9), 59);
});
