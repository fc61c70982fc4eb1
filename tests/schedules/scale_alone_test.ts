import assert from "node:assert/strict";
import process from "node:process";
import {
  analyze,
  createSchedule,
  modelOfCosts,
  type ScheduleOptions,
  simulateStep,
  validate,
  withLists,
} from "../../schedules/mod.ts";

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

/** Twice of what a slow machine takes that has other things to do; a quiet one takes 2 to 3. */
const SECONDS_MAX = 12;

const NAMES: readonly (readonly [string, Partial<ScheduleOptions>])[] = [
  ["1f1b", {}],
  ["chimera", {}],
  ["message-driven", { order: "backward-first" }],
];

for (const [name, options] of NAMES) {
  Deno.test(`a step of ${name} with 2,048 workers and 512 micro-batches is simulated in seconds`, () => {
    const schedule = createSchedule(name, { workers: 2048, microBatches: 512, ...options });
    const { user } = process.cpuUsage();
    const { makespanMs, computedMs } = simulateStep({
      ...modelOfCosts(schedule, { send: 0.1 }),
      controlMs: 0.1,
      closing: {},
      replicas: 8, // 16,384 workers
    });
    const seconds = (process.cpuUsage().user - user) / 1e6;
    assert.ok(makespanMs > computedMs && computedMs > 3 * 512);
    assert.ok(seconds < SECONDS_MAX, `took ${seconds.toFixed(1)} s of a processor`);
    const gigabytes = Deno.memoryUsage().rss / 1e9;
    assert.ok(gigabytes < 4, `took ${gigabytes.toFixed(2)} GB`);
  });
}

Deno.test("128 workers and 512 micro-batches are searched in seconds, and end no later than ZB-V", () => {
  const size = { workers: 128, microBatches: 512 };
  const schedule = withLists(createSchedule("search", size));
  assert.deepEqual(validate(schedule), []);
  const byRule = analyze(createSchedule("zb-v", size)).makespan;
  assert.ok(analyze(schedule).makespan <= byRule);
});
