import assert from "node:assert/strict";
import { analyze, createSchedule, validate, withLists } from "../../schedules/mod.ts";

Deno.test("2,048 workers and 2,048 micro-batches fit into 2 GB", () => {
  const size = 2048;
  const before = Deno.memoryUsage().rss;
  const schedule = withLists(createSchedule("1f1b", { workers: size, microBatches: size }));
  assert.deepEqual(validate(schedule), []);
  const { makespan, peakActivations } = analyze(schedule);
  assert.equal(makespan, 3 * (2 * size - 1));
  assert.equal(peakActivations[0], size);
  const gigabytes = (Deno.memoryUsage().rss - before) / 1e9;
  assert.ok(gigabytes < 2, `took ${gigabytes.toFixed(2)} GB`);
});
