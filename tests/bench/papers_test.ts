/** Figures of the papers, beside their predictions. */

import assert from "node:assert/strict";
import { FIGURES, isMiss, predicted } from "../../bench/papers/mod.ts";
import { machineOf, MODELS, SYSTEMS } from "../../bench/papers/setups.ts";
import { bestPlan, simulatePlan } from "../../bench/papers/simulate.ts";

Deno.test("schedules and formulas have the figures of the papers, except for known errors", () => {
  const counted = FIGURES.filter(({ by }) => by === "formula").map(predicted);
  const misses = counted.filter(isMiss).map(({ paper, claim }) => `${paper}: ${claim}`);
  assert.deepEqual(misses, [
    "chimera: bubbles with f = 2, D = 8: 2(D/f-1)",
    "hanayo: bubble ratio of 1 waves, P = 8, by the printed (2P-2)/(3PW+P-1)",
    "hanayo: bubble ratio of 2 waves, P = 8, by the printed (2P-2)/(3PW+P-1)",
  ]);
  assert.ok(counted.length > 40 && counted.every(({ predicted }) => predicted !== undefined));
});

Deno.test("the best plan fits, has the batch, and is the fastest of those searched", () => {
  const system = SYSTEMS["DAPPLE"]!, model = MODELS["Bert-48"]!, machine = machineOf("daint");
  const task = { machine: "daint", model: "Bert-48", workers: 16, batch: 256 };
  const { plan: best, samplesPerSecond } = bestPlan(system, task)!;
  assert.equal(best.width * best.microBatch * best.options.microBatches, 256);
  assert.equal(best.width * best.options.workers, 16);
  for (const workers of [2, 4, 8, 16]) {
    for (const microBatch of [1, 2, 4, 8, 16]) {
      const microBatches = 256 * workers / (16 * microBatch), width = 16 / workers;
      for (const recomputes of [false, true]) {
        const options = { workers, microBatches };
        const plan = { machine, model, system, width, microBatch, options, recomputes };
        assert.ok((simulatePlan(plan)?.samplesPerSecond ?? 0) <= samplesPerSecond * (1 + 1e-9));
      }
    }
  }
});
