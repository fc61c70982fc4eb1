import assert from "node:assert/strict";
import {
  analyze,
  createSchedule,
  type LayerSkip,
  type LayerTimes,
  partitionForSchedule,
  type Schedule,
  withRecomputation,
} from "../../schedules/mod.ts";
import { withEdges } from "../../schedules/schedule.ts";
import { costsOfCut, edgesOfCut, layerSums } from "../../schedules/analysis/partition.ts";
import fc, { forAll } from "../fast_check.ts";
import { sized } from "./cases.ts";

/** Cuts of a model for a schedule, compared with every possible cut. */

/** Every cut of some layers into stages, as the first layers of the stages. */
function everyCut(layers: number, stages: number, from = 0): number[][] {
  if (stages === 1) return [[from]];
  const cuts: number[][] = [];
  for (let next = from + 1; next <= layers - stages + 1; next++) {
    for (const rest of everyCut(layers, stages - 1, next)) cuts.push([from, ...rest]);
  }
  return cuts;
}

/** The time of a step with a cut. */
function stepOf(chain: Schedule, times: LayerTimes, starts: readonly number[]): number {
  const edges = edgesOfCut(times.skips ?? [], starts), skip = edges.map(({ send }) => send);
  const costs = { ...costsOfCut(layerSums(times), starts), ...edges.length > 0 && { skip } };
  return analyze(withEdges(chain, edges), costs).makespan;
}

const SCHEDULES: readonly Schedule[] = [
  ..."gpipe 3 4,1f1b 4 6,zb-h1 3 5,interleaved 2 4,hanayo 2 2,zb-v 2 4,chimera 4 4,dualpipe-v 2 4"
    .split(",").map(named),
  createSchedule("chimera", { workers: 2, microBatches: 4, scale: "halving" }),
  createSchedule("seq1f1b", { workers: 3, microBatches: 3, slices: 2 }),
  withRecomputation(named("1f1b 3 4")),
];

/** A schedule by its name, workers and micro-batches. */
function named(words: string): Schedule {
  const [name, workers, microBatches] = words.split(" ");
  return sized(name!, Number(workers), Number(microBatches));
}

/** The least time that a step can take with one of these cuts. */
const leastOf = (schedule: Schedule, times: LayerTimes, cuts: readonly number[][]) =>
  Math.min(...cuts.map((cut) => stepOf(schedule, times, cut)));

const timesOf = (layers: number, max: number) =>
  fc.array(fc.integer({ min: 1, max }), { minLength: layers, maxLength: layers });

const someTimes = (layers: number) => {
  const [short, long] = [timesOf(layers, 3), timesOf(layers, 9)];
  return fc.record({ forward: long, input: long, weight: long, send: short })
    .map(({ weight, ...others }): LayerTimes => ({
      ...others,
      backward: others.input.map((time, i) => time + weight[i]!),
    }));
};

Deno.test("no cut of a model takes less time under a schedule than the result", async () => {
  for (const schedule of SCHEDULES) {
    const layers = schedule.stages + 4, cuts = everyCut(layers, schedule.stages);
    await forAll(15, [someTimes(layers)], (times) => {
      const { starts, makespan, isExact } = partitionForSchedule(schedule, times);
      const least = leastOf(schedule, times, cuts);
      assert.ok(isExact);
      assert.ok(Math.abs(makespan - least) < 1e-6, `${makespan} for ${least}`);
      assert.ok(Math.abs(stepOf(schedule, times, starts) - least) < 1e-6);
    });
  }
});

Deno.test("a cut fits, and is the best of the cuts that fit", () => {
  const schedule = sized("1f1b", 3, 5);
  const fits = (stage: number, from: number, to: number) => to - from <= (stage === 0 ? 1 : 4);
  const cuts = everyCut(7, 3).filter((cut) =>
    cut.every((start, stage) => fits(stage, start, cut[stage + 1] ?? 7))
  );
  return forAll(30, [someTimes(7)], (times) => {
    const { makespan } = partitionForSchedule(schedule, times, fits);
    assert.equal(makespan, leastOf(schedule, times, cuts));
  });
});

Deno.test("without lists, a cut is at least as good as stages of equal work", () => {
  const schedule = sized("message-driven", 3, 6);
  const forward = [4, 2, 2, 2, 2, 2, 2, 9], backward = forward.map((time) => 2 * time);
  const times = { forward, backward }, { starts, makespan } = partitionForSchedule(schedule, times);
  assert.equal(stepOf(schedule, times, starts), makespan);
  assert.equal(makespan, leastOf(schedule, times, everyCut(8, 3)));
});

Deno.test("48 blocks with embedding and head are cut for 16 workers", () => {
  const blocks = Array.from({ length: 96 }, (_, i) => i % 2 === 0 ? 4 : 7);
  const forward = [3, ...blocks, 40], backward = forward.map((time) => 2 * time);
  const schedule = sized("1f1b", 16, 32);
  const { starts, makespan } = partitionForSchedule(schedule, { forward, backward });
  assert.equal(starts.length, 16);
  assert.equal(makespan, stepOf(schedule, { forward, backward }, starts));
});

/** Cuts of models with skip edges between layers, compared with every possible cut. */

const LAYERS = 8;

const anySkip = fc.record({
  path: fc.uniqueArray(fc.integer({ min: 0, max: LAYERS - 1 }), { minLength: 2, maxLength: 4 }),
  send: fc.integer({ min: 0, max: 30 }),
  hasGradient: fc.boolean(),
}).map(({ path, ...skip }): LayerSkip => {
  const [from, ...to] = path.sort((a, b) => a - b) as [number, ...number[]];
  return { from, to, ...skip };
});

const anyTimes = fc.record({
  ...{ forward: timesOf(LAYERS, 9), backward: timesOf(LAYERS, 18), send: timesOf(LAYERS, 3) },
  skips: fc.array(anySkip, { minLength: 1, maxLength: 3 }),
});

Deno.test("values of layers go once to each stage that uses them, and never within a stage", () => {
  const later = { from: 2, to: [3], hasGradient: false };
  const skips: LayerSkip[] = [{ from: 1, to: [2, 4, 5, 7], send: 3 }, later];
  const sent = (...to: number[]) => ({ from: 0, to, send: 3, hasGradient: true });
  assert.deepEqual(edgesOfCut(skips, [0, 2, 4, 6]), [sent(1, 2, 3)]);
  const free = { from: 0, to: [1], send: 0, hasGradient: false };
  assert.deepEqual(edgesOfCut(skips, [0, 3]), [sent(1), free]);
  assert.deepEqual(edgesOfCut(skips, [0]), []);
});

Deno.test("a cut counts the values that go beyond the next stage, and reports that it is not proven", async () => {
  let optimal = 0, count = 0;
  for (const schedule of ["1f1b 3 4", "zb-h1 4 4", "hanayo 2 2", "message-driven 3 4"].map(named)) {
    const cuts = everyCut(LAYERS, schedule.stages);
    await forAll(20, [anyTimes], (times) => {
      const found = partitionForSchedule(schedule, times), least = leastOf(schedule, times, cuts);
      assert.equal(found.makespan, stepOf(schedule, times, found.starts));
      assert.ok(found.atLeast <= least + 1e-6 && found.makespan >= least - 1e-6);
      if (found.isExact) assert.equal(found.makespan, least);
      const { skips: _, ...chain } = times, blind = partitionForSchedule(schedule, chain);
      assert.ok(found.makespan <= stepOf(schedule, times, blind.starts));
      count++;
      optimal += Number(found.makespan === least);
    });
  }
  assert.ok(optimal >= 0.8 * count, `${optimal} of ${count}`);
});
