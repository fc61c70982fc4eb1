import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { analyze, modelOfCosts, simulateStep } from "../../../schedules/mod.ts";
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
