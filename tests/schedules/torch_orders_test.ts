import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  analyze,
  createSchedule,
  formatCsv,
  type ScheduleOptions,
  withLists,
} from "../../schedules/mod.ts";
import { made } from "./cases.ts";

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
