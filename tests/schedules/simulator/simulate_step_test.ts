import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { analyze, createSchedule, modelOfCosts, simulateStep } from "../../../schedules/mod.ts";
import { allCases, inWords, isNear, made } from "../cases.ts";

const SERVED = allCases().filter(({ options }) => options.workers * options.microBatches <= 512)
  .filter((one) => made(one) !== undefined);

const servedCase = fc.constantFrom(...SERVED);
const cost = fc.double({ min: 0.05, max: 4, noNaN: true });

Deno.test("where nothing but actions and messages takes time, a simulated step is what analyze says", () => {
  fc.assert(
    fc.property(servedCase, cost, cost, cost, cost, (one, forward, input, weight, send) => {
      const costs = { forward, input, weight, send }, schedule = made(one)!;
      const { makespan, idle, execution } = analyze(schedule, costs);
      const seen = simulateStep(modelOfCosts(schedule, costs));
      assert.equal(seen.makespanMs, makespan, inWords(one));
      assert.deepEqual(seen.timeline.starts, execution.timeline.starts, inWords(one));
      seen.workers.forEach(({ bubbleMs, communicationMs }, worker) => {
        const where = `${inWords(one)}: worker ${worker}`;
        assert.ok(isNear(bubbleMs + communicationMs, idle[worker]!), where);
      });
    }),
    { numRuns: 1000 },
  );
});

Deno.test("measured factors are drawn from: between the least and the greatest, with their mean", () => {
  const schedule = createSchedule("1f1b", { workers: 1, microBatches: 500 });
  const stages = [{ forwardMs: 1, backwardMs: 1 }];
  const step = (amount: number, law: readonly number[] = [0.5, 1, 1.5]) =>
    simulateStep({ schedule, stages, jitter: { law, amount, seed: 3 } });
  const { makespanMs, timeline: { starts, ends } } = step(1);
  assert.ok(Math.abs(makespanMs / 1000 - 1) < 0.03, `${makespanMs}`);
  const durations = Array.from(starts[0]!, (start, i) => ends[0]![i]! - start);
  assert.ok(durations.every((ms) => ms > 0.499 && ms < 1.501));
  assert.ok(Math.min(...durations) < 0.51 && Math.max(...durations) > 1.49);
  assert.equal(step(0).makespanMs, 1000);
  assert.equal(step(1, [1]).makespanMs, 1000);
  assert.throws(() => step(1, []), /jitter\.law's factors must be/);
  assert.throws(() => step(1, [1, 0]), /jitter\.law\[1\] must be a number above 0/);
});
