import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import {
  analyze,
  bubbles,
  formatAction,
  makespanLowerBound,
  validate,
} from "../../schedules/mod.ts";
import { stageTimes } from "../../schedules/costs.ts";
import fc, { forAll } from "../fast_check.ts";
import { anyCosts, atAnyPace, inWords, isNear, listed, made, servedCases, sized } from "./cases.ts";

const SOME = servedCases(({ workers, microBatches }) => workers <= 8 && microBatches <= 20);
const someCase = fc.constantFrom(...SOME);

Deno.test("the bubbles of a worker add up to its idle time, and each has the cause that ended it", () =>
  forAll(200, [someCase, fc.nat({ max: 3 })], (one, send) => {
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
  }));

Deno.test("a bubble names the action that it waits for, with the kind that the neighbour runs", () => {
  const [first] = bubbles(analyze(sized("zb-h1", 2, 2)), 0);
  assert.equal(`${formatAction(first!.before!)} ${formatAction(first!.waitsFor!)}`, "0I0 1I0");
});

Deno.test("no schedule is faster than the lower bound of its placement", () =>
  forAll(atDepth(100, 500), [someCase, anyCosts(0.1, 3)], (one, costs) => {
    const schedule = made(one)!, { makespan, peakActivations } = analyze(schedule, costs);
    const bound = makespanLowerBound(schedule, costs, Math.max(...peakActivations));
    assert.ok(makespan >= bound - 1e-9, `${inWords(one)}: ${makespan} < ${bound}`);
  }));

Deno.test("stages of different cost take their slices of the model", () => {
  const costs = { forward: [1, 2, 3, 4], backward: [2, 4], send: [9, 1, 9, 9] };
  assert.equal(analyze(sized("1f1b", 2, 1), costs).makespan, 3 + 1 + 7 + 4 + 1 + 2);
});

Deno.test("the missing costs of a backward and its parts are derived", () => {
  const parts = (costs: Parameters<typeof stageTimes>[1]) =>
    stageTimes(sized("1f1b", 1, 1), costs).durations.map(([time]) => time);
  assert.deepEqual(parts({}), [1, 2, 1, 1, 1]);
  assert.deepEqual(parts({ backward: 3 }), [1, 3, 1.5, 1.5, 1]);
  assert.deepEqual(parts({ backward: 3, weight: 1 }), [1, 3, 2, 1, 1]);
  assert.deepEqual(parts({ input: 2, weight: 1.5 }), [1, 3.5, 2, 1.5, 1]);
  assert.deepEqual(parts({ forward: 2, recompute: 1.5 }), [2, 2, 1, 1, 1.5]);
});

const SERVED = servedCases(({ workers, microBatches }) => workers * microBatches <= 512);

Deno.test("no schedule deadlocks or breaks its limits, however long actions and messages take", () =>
  forAll(atDepth(200, 1500), [fc.constantFrom(...SERVED), fc.nat()], (one, seed) => {
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
  }));

/** No order beats the lower bound of its placement, and some orders reach it. */

Deno.test("the lower bound has known values", () => {
  const bound = (name: string, workers: number, microBatches: number, costs = {}, limit?: number) =>
    makespanLowerBound(sized(name, workers, microBatches), costs, limit);
  // One worker never waits; two forwards and two backwards that may overlap take two overlaps.
  assert.equal(bound("1f1b", 1, 8), 24);
  assert.equal(bound("1f1b", 1, 8, { forward: 1, backward: 2, overlap: 1.5 }), 12);
  // One micro-batch in both directions: 4 forwards, 3 backwards for the input, a whole one, 6 messages.
  assert.equal(bound("1f1b", 4, 1, { forward: 1, input: 2, weight: 3, send: 0.5 }), 18);
  // Zero bubble (ZB-H2) reaches it: the path to the last worker, and its work.
  assert.equal(bound("zb-h2", 4, 8), 27);
  assert.equal(analyze(sized("zb-h2", 4, 8)).makespan, 27);
  // One activation at a time: a micro-batch lives on worker 0 for 3 · 2 + 1, eight of them.
  assert.equal(bound("1f1b", 3, 8, {}, 1), 56);
});

Deno.test("the lower bound counts that a gradient in halves arrives sooner", () => {
  const halving = listed("0F0,0B0.0,0B0.1\n1F0,1B0.0,1B0.1\n2F0,2B0.0,2B0.1\n");
  const costs = { forward: 1, input: 3, weight: 1 };
  // Three forwards, then a half of 2 on stages 2 and 1 (an I takes 3), and both halves on stage 0.
  assert.equal(makespanLowerBound(halving, costs), 11);
  assert.equal(analyze(halving, costs).makespan, 11);
  const [wait, ...others] = bubbles(analyze(halving, costs), 0);
  assert.deepEqual([wait!.waitsFor?.part?.index, others], [0, []]);
});
