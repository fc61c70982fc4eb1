import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { analyze, createSchedule, pipelineWorkers, simulateStep } from "../../../schedules/mod.ts";
import { allCases, inWords, isNear, made } from "../cases.ts";

const SERVED = allCases().filter(({ options }) => options.workers * options.microBatches <= 256)
  .filter((one) => made(one) !== undefined);

Deno.test("where each stage keeps its share of a byte, the peak of bytes is that of activations", () => {
  fc.assert(
    fc.property(fc.constantFrom(...SERVED), (one) => {
      const schedule = made(one)!, share = pipelineWorkers(schedule) / schedule.stages;
      const { peakActivations } = analyze(schedule);
      const stage = { forwardMs: share, backwardMs: 2 * share, memory: { keptBytes: share } };
      const stages = Array.from({ length: schedule.stages }, () => stage);
      const { peakBytes } = simulateStep({ schedule, stages });
      peakBytes.forEach((bytes, worker) =>
        assert.ok(isNear(bytes, peakActivations[worker]!), `${inWords(one)}: worker ${worker}`)
      );
    }),
    { numRuns: 300 },
  );
});

Deno.test("bytes over time: F keeps, I frees a part, W the rest, and all comes back to what is held", () => {
  const schedule = createSchedule("zb-h1", { workers: 1, microBatches: 1 });
  const { memoryOf, peakBytes } = simulateStep({
    schedule,
    stages: [{
      forwardMs: 1,
      backwardMs: 2,
      memory: {
        weightBytes: 100,
        gradientBytes: 100,
        optimizerBytes: 200,
        keptBytes: 10,
        freedByInputBytes: 6,
        workBytes: 3,
      },
    }],
  });
  assert.deepEqual(memoryOf(0), {
    timesMs: [0, 0, 1, 1, 2, 2, 3],
    bytes: [400, 413, 410, 413, 404, 407, 400],
  });
  assert.deepEqual(peakBytes, [413]);
});

Deno.test("what is recomputed is there only while its backward runs", () => {
  const run = (recomputedBytes: number, keptBytes: number) =>
    simulateStep({
      schedule: createSchedule("gpipe", { workers: 1, microBatches: 4 }),
      stages: [{
        forwardMs: 1,
        backwardMs: 2,
        recomputeMs: 1,
        memory: { keptBytes, recomputedBytes },
      }],
    });
  assert.deepEqual(run(9, 1).peakBytes, [4 + 9]);
  assert.equal(run(9, 1).memoryOf(0).bytes.at(-1), 0);
  assert.equal(run(9, 1).makespanMs, 4 * (1 + 2 + 1));
});

Deno.test("versions of weights are held as often as the schedule keeps them", () => {
  const schedule = createSchedule("pipedream", { workers: 3, microBatches: 3 });
  const stage = { forwardMs: 1, backwardMs: 2, memory: { weightBytes: 1, keptBytes: 0 } };
  assert.deepEqual(simulateStep({ schedule, stages: [stage, stage, stage] }).peakBytes, [3, 2, 1]);
});
