/** Cuts of models with values that go beyond the next layer, held against every cut there is. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  analyze,
  createSchedule,
  type LayerSkip,
  type LayerTimes,
  partitionForSchedule,
  type Schedule,
  withEdges,
} from "../../../schedules/mod.ts";
import { edgesOfCut } from "../../../schedules/partition/edges_of_cut.ts";
import { costsOfCut, layerSums } from "../../../schedules/partition/layer_times.ts";

const LAYERS = 8;
const SCHEDULES = [
  createSchedule("1f1b", { workers: 3, microBatches: 4 }),
  createSchedule("zb-h1", { workers: 4, microBatches: 4 }),
  createSchedule("hanayo", { workers: 2, microBatches: 2 }),
  createSchedule("message-driven", { workers: 3, microBatches: 4 }),
];

/** Every cut of some layers into stages, as the first layers of the stages. */
function everyCut(stages: number, from = 0): number[][] {
  if (stages === 1) return [[from]];
  const cuts: number[][] = [];
  for (let next = from + 1; next <= LAYERS - stages + 1; next++) {
    for (const rest of everyCut(stages - 1, next)) cuts.push([from, ...rest]);
  }
  return cuts;
}

/** What a step takes with a cut. */
function stepOf(chain: Schedule, times: LayerTimes, starts: readonly number[]): number {
  const edges = edgesOfCut(times.skips!, starts), skip = edges.map(({ send }) => send);
  return analyze(withEdges(chain, edges), { ...costsOfCut(layerSums(times), starts), skip })
    .makespan;
}

const anySkips = fc.array(
  fc.integer({ min: 0, max: LAYERS - 2 }).chain((from) =>
    fc.record({
      from: fc.constant(from),
      to: fc.uniqueArray(fc.integer({ min: from + 1, max: LAYERS - 1 }), {
        minLength: 1,
        maxLength: 3,
      }).map((to) => to.sort((a, b) => a - b)),
      send: fc.integer({ min: 0, max: 30 }),
      hasGradient: fc.boolean(),
    })
  ),
  { minLength: 1, maxLength: 3 },
);

const anyTimes = () => {
  const times = (max: number) =>
    fc.array(fc.integer({ min: 1, max }), { minLength: LAYERS, maxLength: LAYERS });
  return fc.record({ forward: times(9), backward: times(18), send: times(3), skips: anySkips });
};

Deno.test("values of layers go to the stages that use them, once and never within a stage", () => {
  const skips: LayerSkip[] = [
    { from: 1, to: [2, 4, 5, 7], send: 3 },
    { from: 2, to: [3], hasGradient: false },
  ];
  assert.deepEqual(edgesOfCut(skips, [0, 2, 4, 6]), [
    { from: 0, to: [1, 2, 3], send: 3, hasGradient: true },
  ]);
  assert.deepEqual(edgesOfCut(skips, [0, 3]), [
    { from: 0, to: [1], send: 3, hasGradient: true },
    { from: 0, to: [1], send: 0, hasGradient: false },
  ]);
  assert.deepEqual(edgesOfCut(skips, [0]), []);
});

Deno.test("a cut counts the values that go beyond the next stage, and says what it has not proven", () => {
  let optimal = 0, count = 0;
  for (const schedule of SCHEDULES) {
    const cuts = everyCut(schedule.stages);
    fc.assert(
      fc.property(anyTimes(), (times) => {
        const found = partitionForSchedule(schedule, times);
        assert.equal(found.makespan, stepOf(schedule, times, found.starts));
        const least = Math.min(...cuts.map((cut) => stepOf(schedule, times, cut)));
        assert.ok(found.atLeast <= least + 1e-6 && found.makespan >= least - 1e-6);
        if (found.isExact) assert.equal(found.makespan, least);
        const { skips: _, ...chain } = times;
        const blind = partitionForSchedule(schedule, chain);
        assert.ok(found.makespan <= stepOf(schedule, times, blind.starts));
        count++;
        if (found.makespan === least) optimal++;
      }),
      { numRuns: 20 },
    );
  }
  assert.ok(optimal >= 0.8 * count, `${optimal} of ${count}`);
});
