/** V-Half and V-Min against the figures of their authors' code. */

import assert from "node:assert/strict";
import { analyze, createSchedule } from "../../schedules/mod.ts";

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
