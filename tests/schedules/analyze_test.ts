import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import {
  analyze,
  bubbles,
  createSchedule,
  formatAction,
  makespanLowerBound,
  validate,
} from "../../schedules/mod.ts";
import { stageTimes } from "../../schedules/costs.ts";
import fc from "../fast_check.ts";
import {
  atAnyPace,
  between,
  inWords,
  isNear,
  listed,
  made,
  propertyTest,
  refuses,
  servedCases,
} from "./cases.ts";

const SOME = servedCases(({ workers, microBatches }) => workers <= 8 && microBatches <= 20);
const someCase = fc.constantFrom(...SOME);

propertyTest(
  "the bubbles of a worker add up to its idle time, and each has the cause that ended it",
  [someCase, fc.nat({ max: 3 })],
  (one, send) => {
    const schedule = made(one)!, analysis = analyze(schedule, { send: send / 2 });
    for (let worker = 0; worker < schedule.workers; worker++) {
      let sum = 0;
      for (const { start, end, before, waitsFor } of bubbles(analysis, worker)) {
        sum += end - start;
        if (before === undefined) assert.equal(end, analysis.makespan);
        else assert.ok(isNear(waitsFor!.time, end), `${inWords(one)}: another dependency`);
      }
      assert.ok(isNear(sum, analysis.idle[worker]!), `${inWords(one)}: worker ${worker}`);
    }
  },
  200,
);

Deno.test("a bubble names the action that it waits for, with the kind that the neighbour runs", () => {
  const analysis = analyze(createSchedule("zb-h1", { workers: 2, microBatches: 2 }));
  const [first] = bubbles(analysis, 0);
  assert.equal(`${formatAction(first!.before!)} ${formatAction(first!.waitsFor!)}`, "0I0 1I0");
});

const cost = between(0.1, 3);

propertyTest(
  "no schedule is faster than the lower bound of its placement",
  [someCase, cost, cost, cost, cost],
  (one, forward, input, weight, send) => {
    const schedule = made(one)!, costs = { forward, input, weight, send };
    const { makespan, peakActivations } = analyze(schedule, costs);
    const bound = makespanLowerBound(schedule, costs, Math.max(...peakActivations));
    assert.ok(makespan >= bound - 1e-9, `${inWords(one)}: ${makespan} < ${bound}`);
  },
  atDepth(100, 500),
);

Deno.test("stages of different cost take their slices of the model", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  const costs = { forward: [1, 2, 3, 4], backward: [2, 4], send: [9, 1, 9, 9] };
  assert.equal(analyze(schedule, costs).makespan, (1 + 2) + 1 + (3 + 4) + 4 + 1 + 2);
});

Deno.test("the missing costs of a backward and its parts are derived", () => {
  const schedule = createSchedule("1f1b", { workers: 1, microBatches: 1 });
  const parts = (costs: Parameters<typeof stageTimes>[1]) =>
    stageTimes(schedule, costs).durations.map(([time]) => time);
  assert.deepEqual(parts({}), [1, 2, 1, 1, 1]);
  assert.deepEqual(parts({ backward: 3 }), [1, 3, 1.5, 1.5, 1]);
  assert.deepEqual(parts({ backward: 3, weight: 1 }), [1, 3, 2, 1, 1]);
  assert.deepEqual(parts({ input: 2, weight: 1.5 }), [1, 3.5, 2, 1.5, 1]);
  assert.deepEqual(parts({ forward: 2, recompute: 1.5 }), [2, 2, 1, 1, 1.5]);
  const sum = /backward must be the sum of input and weight, received 2, 2 and 2 for stage 0/;
  refuses(() => parts({ backward: 2, input: 2, weight: 2 }), sum);
  refuses(() => parts({ backward: 1, input: 2 }));
  refuses(() => parts({ forward: -1 }), /received -1/);
  refuses(() => parts({ send: NaN }));
});

Deno.test("a schedule that deadlocks is refused by the analysis", () => {
  const message = /Cannot analyze the schedule mine: .* a deadlock at action 0 of worker 0/;
  refuses(() => analyze(listed("0B0,0F0\n")), message);
});

const SERVED = servedCases(({ workers, microBatches }) => workers * microBatches <= 512);

propertyTest(
  "no schedule deadlocks or breaks its limits, however long actions and messages take",
  [fc.constantFrom(...SERVED), fc.nat()],
  (one, seed) => {
    const schedule = made(one)!, { schedule: ran } = atAnyPace(schedule, seed);
    assert.deepEqual(validate(ran), [], inWords(one));
    if (schedule.lists !== undefined) return;
    const { peakActivations: peaks } = analyze(ran), limit = schedule.injectionLimit;
    assert.ok(peaks.every((peak) => peak <= limit), `${inWords(one)}: peak over limit`);
    const { least, most } = schedule.peaks!.at(-1)!;
    const last = peaks.at(-1)! * schedule.stages / schedule.workers;
    assert.ok(last <= (schedule.stages > schedule.workers ? 2 : 1) * most, inWords(one));
    if (least < most) return;
    const ends = [schedule.stages === 1 ? 1 : limit, 1];
    assert.deepEqual([peaks[0], peaks.at(-1)], ends, inWords(one));
  },
  atDepth(200, 1500),
);

/** No order beats the lower bound of its placement, and some orders reach it. */

Deno.test("the lower bound has known values", () => {
  const bound = (name: string, workers: number, microBatches: number, costs = {}, limit?: number) =>
    makespanLowerBound(createSchedule(name, { workers, microBatches }), costs, limit);
  // One worker never waits; two forwards and two backwards that may overlap take two overlaps.
  assert.equal(bound("1f1b", 1, 8), 24);
  assert.equal(bound("1f1b", 1, 8, { forward: 1, backward: 2, overlap: 1.5 }), 12);
  // One micro-batch in both directions: 4 forwards, 3 backwards for the input, a whole one, 6 messages.
  assert.equal(bound("1f1b", 4, 1, { forward: 1, input: 2, weight: 3, send: 0.5 }), 18);
  // Zero bubble (ZB-H2) reaches it: the path to the last worker, and its work.
  assert.equal(bound("zb-h2", 4, 8), 27);
  assert.equal(analyze(createSchedule("zb-h2", { workers: 4, microBatches: 8 })).makespan, 27);
  // One activation at a time: a micro-batch lives on worker 0 for 3 · 2 + 1, eight of them.
  assert.equal(bound("1f1b", 3, 8, {}, 1), 56);
});

Deno.test("the lower bound counts that a gradient in halves arrives sooner", () => {
  const halving = listed("0F0,0B0.0,0B0.1\n1F0,1B0.0,1B0.1\n2F0,2B0.0,2B0.1\n");
  const costs = { forward: 1, input: 3, weight: 1 };
  // Three forwards, then a half of 2 on stages 2 and 1 (an I takes 3), and both halves on stage 0.
  assert.equal(makespanLowerBound(halving, costs), 11);
  assert.equal(analyze(halving, costs).makespan, 11);
  const waits = [...bubbles(analyze(halving, costs), 0)].map(({ waitsFor }) =>
    waitsFor?.part?.index
  );
  assert.deepEqual(waits, [0]);
});
