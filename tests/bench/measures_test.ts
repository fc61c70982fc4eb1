import assert from "node:assert/strict";
import type { TracedAction } from "../../actors/pipeline/step.ts";
import { openFmaLoop, openTriad } from "../../bench/kernels.ts";
import { lostMs } from "../../bench/pipeline.ts";
import { drawPlans, plansBench, spaceOf } from "../../bench/plans.ts";
import { exponentOf, limitRounds } from "../../bench/timing.ts";
import { FIGURES, isMiss, papersPage, predicted } from "../../bench/papers/mod.ts";
import { bestPlan, machineOf, MODELS, simulatePlan, SYSTEMS } from "../../bench/papers/simulate.ts";
import { IS_DEEP } from "../depth.ts";

/** Actions, one behind the other: their names and when they began and ended. */
const trace = (...actions: readonly [name: string, start: number, end: number][]) =>
  actions.map(([name, start, end]): TracedAction => ({ name, start, end }));

Deno.test("a step that waits only for its inputs has no lost time, including bubbles", () => {
  const first = trace(["0F0", 0, 2], ["0F1", 2, 4], ["0B0", 8, 10], ["0B1", 14, 16]);
  const last = trace(["1F0", 2, 4], ["1B0", 4, 8], ["1F1", 8, 10], ["1B1", 10, 14]);
  assert.equal(lostMs([first, last]), 0);
});

Deno.test("time between an output and its user is lost, time of optimizers is not", () => {
  const first = trace(["0F0", 0, 2], ["0B0", 11, 13], ["optimizer", 20, 30]);
  const last = trace(["1F0", 3, 5], ["1B0", 5, 9], ["reduce 0,1", 13, 20]);
  assert.equal(lostMs([first, last]), 3);
});

Deno.test("a split backward sends its gradient after its input part", () => {
  const first = trace(["0F0", 0, 1], ["0I0", 5, 6], ["0W0", 6, 7]);
  const last = trace(["1F0", 1, 2], ["1I0", 2, 4], ["1W0", 4, 6]);
  assert.equal(lostMs([first, last]), 1);
});

Deno.test("an exponent is the power of growth of values", () => {
  const points = [1, 2, 4, 8].map((size) => [size, 5 * size ** 1.5] as const);
  assert.ok(Math.abs(exponentOf(points) - 1.5) < 1e-12);
  assert.equal(exponentOf([[1, 3], [2, 3], [4, 3]]), 0);
});

Deno.test("the triad computes the right numbers", async () => {
  const triad = await openTriad(); // it looks at its own result
  triad();
});

Deno.test("the loop of FMAs computes the right numbers", async () => {
  (await openFmaLoop())?.run(); // it looks at its own result; a processor may lack the instruction
});

Deno.test("plans are drawn by the seed, one of each schedule in turn, and have the samples of a step", () => {
  const space = spaceOf(2), plans = drawPlans(space, 4, 1);
  assert.deepEqual(drawPlans(space, 2, 1), plans.slice(0, 2));
  assert.notDeepEqual(drawPlans(space, 2, 2), plans.slice(0, 2));
  assert.equal(new Set(plans.map(({ schedule }) => schedule)).size, 4);
  for (const { workers, replicas, microBatch, microBatches } of plans) {
    assert.ok(workers * replicas <= 2);
    assert.equal(replicas * microBatch * microBatches, space.batch);
  }
});

if (IS_DEEP) {
  Deno.test("the planner's choice is measured beside the best of random plans", async () => {
    limitRounds(1);
    const [ratio, choice, first, second, all, ...more] = await plansBench(2);
    assert.deepEqual([ratio!.name, more], ["choice ÷ best measured", []]);
    assert.match(ratio!.note!, /^(not )?equal within the profile's ±/);
    assert.match(choice!.name, /^choice: /);
    const [own, ...best] = [choice, first, second].map((row) => row!.measured!.median);
    assert.ok(Math.abs(ratio!.measured!.median - own! / Math.min(...best)) < 1e-9);
    assert.equal(all!.name, "predicted ÷ measured, 2 plans");
  });
}

/** Figures of the papers, beside their predictions. */

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

Deno.test("docs/papers.md has every figure, and the reason of every one that is missed", async () => {
  const page = await Deno.readTextFile(new URL("../../docs/papers.md", import.meta.url));
  for (const { where, claim } of FIGURES) {
    assert.ok(page.includes(`| ${where} | ${claim} | `), claim);
  }
  const missed = page.split("\n").filter((line) => line.includes("| miss"));
  assert.deepEqual(missed.filter((line) => !/\| miss[^|:]*: [^|]+ \|$/.test(line)), []);
  if (IS_DEEP) assert.equal(page.trim(), papersPage());
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
