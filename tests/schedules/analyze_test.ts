import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import {
  type Action,
  analyze,
  bubbles,
  createSchedule,
  formatAction,
  makespanLowerBound,
  parseCsv,
  pipelineWorkers,
  type Schedule,
  scheduleFromLists,
  stageTimes,
  withLists,
} from "../../schedules/mod.ts";
import fc from "../fast_check.ts";
import { allCases, inWords, isNear, made, refuses } from "./cases.ts";
import { observe } from "./executor.ts";

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
    { numRuns: atDepth(100, 500) },
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
  refuses(
    () => parts({ backward: 2, input: 2, weight: 2 }),
    /backward must be the sum of input and weight, received 2, 2 and 2 for stage 0/,
  );
  refuses(() => parts({ backward: 1, input: 2 }));
  refuses(() => parts({ forward: -1 }), /received -1/);
  refuses(() => parts({ send: NaN }));
});

Deno.test("costs of more slices than stages can share are refused", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  refuses(
    () => stageTimes(schedule, { forward: [1, 2, 3] }),
    /the length of forward must be a multiple of the 2 stages of 1f1b, received 3/,
  );
});

Deno.test("a schedule that deadlocks is not measured", () => {
  const schedule = scheduleFromLists("stuck", parseCsv("0B0,0F0\n"));
  refuses(
    () => analyze(schedule),
    /Cannot analyze the schedule stuck: .* a deadlock at action 0 of worker 0/,
  );
});

const SERVED = allCases().filter(({ options }) => options.workers * options.microBatches <= 512)
  .filter((one) => made(one) !== undefined);

const servedCase = fc.constantFrom(...SERVED);
const cost = fc.double({ min: 0.05, max: 4, noNaN: true });

/** The durations of a schedule as the second executor wants them. */
function clockOf(schedule: Schedule, costs: Parameters<typeof stageTimes>[1]) {
  const { durations, send } = stageTimes(schedule, costs), { slices = 1 } = schedule;
  return {
    duration({ kind, stage, half }: Action): number {
      const whole = durations["FBIWR".indexOf(kind)]![stage]! / slices;
      return half === undefined ? whole : whole / 2;
    },
    send: ({ kind, stage }: Action) => send[kind === "F" ? stage : stage - 1]! / slices,
  };
}

Deno.test("two executors agree on time, idle time and peaks of every list", () => {
  fc.assert(
    fc.property(servedCase, cost, cost, cost, cost, (one, forward, input, weight, send) => {
      const costs = { forward, input, weight, send };
      const schedule = withLists(made(one)!, costs);
      const analysis = analyze(schedule, costs);
      const seen = observe(
        { ...schedule, injectionLimit: schedule.microBatches },
        clockOf(schedule, costs),
      );
      assert.ok(isNear(analysis.makespan, seen.makespan), `${inWords(one)}: the time differs`);
      const share = pipelineWorkers(schedule) / schedule.stages;
      seen.idle.forEach((idle, worker) => {
        const where = `${inWords(one)}: worker ${worker}`;
        assert.ok(isNear(analysis.idle[worker]!, idle), `${where}: the idle time differs`);
        const peak = seen.peaks[worker]! * share;
        assert.ok(isNear(analysis.peakActivations[worker]!, peak), `${where}: the peak differs`);
      });
    }),
    { numRuns: atDepth(200, 1500) },
  );
});

Deno.test("no schedule deadlocks or breaks its limits, however long actions and messages take", () => {
  const jitter = fc.infiniteStream(fc.double({ min: 0, max: 3, noNaN: true }));
  fc.assert(
    fc.property(servedCase, jitter, (one, stream) => {
      const schedule = made(one)!;
      const next = () => stream.next().value!;
      const seen = observe(schedule, { duration: next, send: next });
      assert.ok(seen.inFlight <= schedule.injectionLimit, `${inWords(one)}: too many in flight`);
      seen.ran.forEach((actions, worker) => {
        if (schedule.lists !== undefined) {
          assert.deepEqual(actions, [...schedule.lists[worker]!], inWords(one));
          return;
        }
        // Messages decide the order, but never that of the sums.
        const backwards = actions.filter(({ kind }) => kind === "B");
        const expected = backwards.map(({ microBatch }) => microBatch).sort((a, b) => a - b);
        assert.deepEqual(backwards.map(({ microBatch }) => microBatch), expected, inWords(one));
      });
      if (schedule.lists === undefined) {
        const limit = schedule.injectionLimit;
        assert.ok(seen.peaks.every((peak) => peak <= limit), `${inWords(one)}: peak over limit`);
        assert.equal(seen.peaks[0], schedule.stages === 1 ? 1 : limit, inWords(one));
        assert.equal(seen.peaks.at(-1), 1, inWords(one));
      }
    }),
    { numRuns: atDepth(200, 1500) },
  );
});

/** No order beats the lower bound of its placement, and some orders reach it. */

Deno.test("the bound is what a step takes at least, to the number", () => {
  const bound = (name: string, workers: number, microBatches: number, costs = {}, limit?: number) =>
    makespanLowerBound(createSchedule(name, { workers, microBatches }), costs, limit);
  // One worker never waits; two forwards and backwards that may overlap are two overlaps.
  assert.equal(bound("1f1b", 1, 8), 24);
  assert.equal(bound("1f1b", 1, 8, { forward: 1, backward: 2, overlap: 1.5 }), 12);
  // One micro-batch goes up and down: 4 forwards, 3 backwards for the input, a whole one, 6 ways.
  assert.equal(bound("1f1b", 4, 1, { forward: 1, input: 2, weight: 3, send: 0.5 }), 18);
  // Zero bubble (ZB-H2) reaches it: the way to the last worker, and its work.
  assert.equal(bound("zb-h2", 4, 8), 27);
  assert.equal(analyze(createSchedule("zb-h2", { workers: 4, microBatches: 8 })).makespan, 27);
  // One activation at a time: a micro-batch lives on worker 0 for 3 · 2 + 1, eight of them.
  assert.equal(bound("1f1b", 3, 8, {}, 1), 56);
});

Deno.test("a gradient that travels in halves arrives sooner, and the bound knows", () => {
  const lists = parseCsv("0F0,0B0.0,0B0.1\n1F0,1B0.0,1B0.1\n2F0,2B0.0,2B0.1\n");
  const halving = scheduleFromLists("halving", lists), costs = { forward: 1, input: 3, weight: 1 };
  // Three forwards, then a half of 2 on stages 2 and 1 (an I takes 3), and both halves on stage 0.
  assert.equal(makespanLowerBound(halving, costs), 11);
  assert.equal(analyze(halving, costs).makespan, 11);
});
