import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import {
  analyze,
  bubbles,
  createSchedule,
  formatAction,
  makespanLowerBound,
  parseCsv,
  scheduleFromLists,
  stageTimes,
} from "../../schedules/mod.ts";
import { allCases, inWords, isNear, made } from "./cases.ts";

const CASES = allCases().filter(({ options: { workers, microBatches } }) =>
  workers <= 8 && microBatches <= 20
);

Deno.test("the bubbles of a worker add up to its idle time, and each has the cause that ended it", () => {
  fc.assert(
    fc.property(fc.constantFrom(...CASES), fc.nat({ max: 3 }), (one, send) => {
      const schedule = made(one);
      fc.pre(schedule !== undefined);
      const analysis = analyze(schedule!, { send: send / 2 });
      for (let worker = 0; worker < schedule!.workers; worker++) {
        let sum = 0;
        for (const { start, end, before, waitsFor } of bubbles(analysis, worker)) {
          sum += end - start;
          if (before === undefined) assert.equal(end, analysis.makespan);
          else assert.ok(isNear(waitsFor!.time, end), `${inWords(one)}: not what it waited for`);
        }
        assert.ok(isNear(sum, analysis.idle[worker]!), `${inWords(one)}: worker ${worker}`);
      }
    }),
    { numRuns: 200 },
  );
});

Deno.test("a bubble names the action that it waits for, by the kind that the neighbour runs", () => {
  const analysis = analyze(createSchedule("zb-h1", { workers: 2, microBatches: 2 }));
  const [first] = bubbles(analysis, 0);
  assert.equal(formatAction(first!.before!), "0I0");
  assert.equal(formatAction(first!.waitsFor!), "1I0");
});

Deno.test("no schedule is faster than the lower bound of its placement", () => {
  const cost = fc.double({ min: 0.1, max: 3, noNaN: true });
  fc.assert(
    fc.property(fc.constantFrom(...CASES), cost, cost, cost, cost, (one, ...costs) => {
      const schedule = made(one);
      fc.pre(schedule !== undefined);
      const [forward, input, weight, send] = costs;
      const { makespan, peakActivations } = analyze(schedule!, { forward, input, weight, send });
      const peak = Math.max(...peakActivations);
      const bound = makespanLowerBound(schedule!, { forward, input, weight, send }, peak);
      assert.ok(makespan >= bound - 1e-9, `${inWords(one)}: ${makespan} < ${bound}`);
    }),
    { numRuns: 500 },
  );
});

Deno.test("stages of unlike cost take their slices of the model", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  const { makespan } = analyze(schedule, {
    forward: [1, 2, 3, 4],
    backward: [2, 4],
    send: [9, 1, 9, 9],
  });
  assert.equal(makespan, (1 + 2) + 1 + (3 + 4) + 4 + 1 + 2);
});

Deno.test("of a backward and its parts, what is not given follows", () => {
  const schedule = createSchedule("1f1b", { workers: 1, microBatches: 1 });
  const parts = (costs: Parameters<typeof stageTimes>[1]) =>
    stageTimes(schedule, costs).durations.map(([time]) => time);
  assert.deepEqual(parts({}), [1, 2, 1, 1, 1]);
  assert.deepEqual(parts({ backward: 3 }), [1, 3, 1.5, 1.5, 1]);
  assert.deepEqual(parts({ backward: 3, weight: 1 }), [1, 3, 2, 1, 1]);
  assert.deepEqual(parts({ input: 2, weight: 1.5 }), [1, 3.5, 2, 1.5, 1]);
  assert.deepEqual(parts({ forward: 2, recompute: 1.5 }), [2, 2, 1, 1, 1.5]);
  assert.throws(() => parts({ backward: 2, input: 2, weight: 2 }), {
    name: "RangeError",
    message: /backward must be the sum of input and weight, received 2, 2 and 2 for stage 0/,
  });
  assert.throws(() => parts({ backward: 1, input: 2 }), RangeError);
  assert.throws(() => parts({ forward: -1 }), { name: "RangeError", message: /received -1/ });
  assert.throws(() => parts({ send: NaN }), RangeError);
});

Deno.test("costs of more slices than stages can share are refused", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  assert.throws(() => stageTimes(schedule, { forward: [1, 2, 3] }), {
    name: "RangeError",
    message: /the length of forward must be a multiple of the 2 stages of 1f1b, received 3/,
  });
});

Deno.test("a schedule that deadlocks is not measured", () => {
  const schedule = scheduleFromLists("stuck", parseCsv("0B0,0F0\n"));
  assert.throws(() => analyze(schedule), {
    name: "RangeError",
    message: /Cannot analyze the schedule stuck: .* a deadlock at action 0 of worker 0/,
  });
});
