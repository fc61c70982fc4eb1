import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import {
  type Action,
  analyze,
  pipelineWorkers,
  type Schedule,
  stageTimes,
  withLists,
} from "../../schedules/mod.ts";
import { allCases, inWords, isNear, made } from "./cases.ts";
import { observe } from "./executor.ts";

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
    { numRuns: 1500 },
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
    { numRuns: 1500 },
  );
});
