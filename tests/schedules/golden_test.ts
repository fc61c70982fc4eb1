import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  analyze,
  type Cost,
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
 * The file of each order, and its schedule. Other tests check that orders are right; this one checks
 * that an order changes only on purpose, because weights and traces depend on it.
 */
const GOLDEN: Readonly<Record<string, readonly [name: string, options: ScheduleOptions]>> = {
  ...Object.fromEntries(scheduleNames().map((name) => [name, [name, FOUR]])),
  "message-driven-fifo": ["message-driven", { ...FOUR, order: "fifo" }],
  "message-driven-v": ["message-driven", { ...FOUR, chunks: 2 }],
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
  // The result of a search may change with the search.
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
          const options = { workers: Number(workers), microBatches, chunks };
          const schedule = made({ name, options });
          if (schedule === undefined) continue;
          const key = [name, workers, microBatches, ...chunks ? [chunks] : []].join(" ");
          hash.update(`${key}\n${formatCsv(withLists(schedule).lists)}`);
        }
      }
      assert.equal(hash.digest("hex"), expected, `${name} on ${workers} workers`);
    }
  });
}

type Row = [string, number, number, Cost, Cost, Cost, number, number, number?];

/** Time and memory of V-Half and V-Min by the code of their authors, in chunks of half a worker. */
const { rows } = JSON.parse(golden("../../fixtures/schedules/v_half_v_min.json")) as {
  rows: Row[];
};

Deno.test("V-Half and V-Min take no more time and memory than their authors' code, at any durations", () => {
  assert.ok(rows.length >= 418);
  // In seconds instead of the picoseconds of a row: an order does not depend on the unit.
  const costOf = (chunk: Cost) =>
    typeof chunk === "number" ? 2e-12 * chunk : chunk.map((time) => 1e-12 * time);
  const some = rows.filter((row, i) => row.length > 8 || i % atDepth(3, 1) === 0);
  for (const [name, workers, microBatches, F, I, W, makespan, peak, send = 0] of some) {
    const costs = { forward: costOf(F), input: costOf(I), weight: costOf(W), send: 1e-12 * send };
    const found = analyze(createSchedule(name, { workers, microBatches, costs }), costs);
    const time = 1e12 * found.makespan;
    const where = `${name} ${workers} ${microBatches} ${[F, I, W, send]}`;
    assert.ok(time <= makespan + 1e-6, `${time} > ${makespan}: ${where}`);
    assert.ok(2 * Math.max(...found.peakActivations) <= peak, `holds more than ${peak}: ${where}`);
    assert.deepEqual(validate(found.schedule), [], where);
  }
});
