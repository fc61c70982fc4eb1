import { anyCosts, between, sized } from "./cases.ts";
import assert from "node:assert/strict";
import {
  analyze,
  type Costs,
  createSchedule,
  makespanLowerBound,
  type Place,
  type ScheduleOptions,
  type SkipEdge,
  validate,
  withLists,
  withOrders,
  withRecomputation,
} from "../../schedules/mod.ts";
import { withEdges } from "../../schedules/schedule.ts";
import { searchedPlaces } from "../../schedules/search/search.ts";
import { exactOrder } from "../../schedules/search/exact.ts";
import { greedyOrder } from "../../schedules/search/greedy.ts";
import {
  irregularPlaces,
  placeOf,
  regularPlaces,
  workloadOf,
} from "../../schedules/search/limits.ts";
import { atDepth } from "../depth.ts";
import fc, { forAll } from "../fast_check.ts";

const choices = fc.record({
  isSplit: fc.boolean(),
  isForwardFirst: fc.boolean(),
  patience: fc.constantFrom(0, 0.5, 1),
  pipeLimit: fc.constantFrom(2, Infinity),
});

Deno.test("whatever the limits and costs, the list scheduler neither gets stuck nor breaks them", () =>
  forAll(300, [
    fc.constantFrom("1f1b", "interleaved", "hanayo", "chimera", "dualpipe"),
    fc.integer({ min: 2, max: 8 }),
    fc.integer({ min: 0, max: 6 }),
    anyCosts(0.1, 3),
    choices,
  ], (name, half, extra, costs, choice) => {
    const workers = name === "chimera" || name === "dualpipe" ? 2 * Math.ceil(half / 2) : half;
    const base = createSchedule(name, { workers, microBatches: 2 * workers });
    const activations = Math.max(...base.placement.map(({ length }) => length)) + extra;
    const limits = Array<number>(workers).fill(activations);
    const orders = greedyOrder(workloadOf(base, costs), { ...choice, limits });
    assert.deepEqual(validate(withOrders(base, "greedy", orders), { activations }), []);
  }));

Deno.test("a local search shortens the orders of rules and list scheduling", () => {
  const search = (costs: Costs, workers: number, microBatches: number) => {
    const options = { workers, microBatches, activationLimit: 3, costs };
    return analyze(createSchedule("search", options), costs).makespan;
  };
  // Without the local search they take 28, 17 and 30.75.
  assert.ok(search({}, 4, 8) <= 27);
  assert.ok(search({ forward: 1, input: 1.5, weight: 0.5 }, 3, 5) <= 16.75);
  assert.ok(search({ forward: 1, input: 1.5, weight: 0.5 }, 4, 8) <= 29.25);
});

Deno.test("a search with recomputation beats every rule with it, within the limit and above its bound", () =>
  forAll(atDepth(6, 100), [
    fc.constantFrom(2, 4),
    fc.integer({ min: 1, max: 2 }),
    fc.tuple(anyCosts(0.1, 3), between(0.1, 3)),
  ], (workers, rounds, [others, recompute]) => {
    const costs = { ...others, recompute };
    const size = { workers, microBatches: rounds * workers };
    const options = { ...size, costs, activationLimit: 1, recomputeAhead: true };
    const found = analyze(createSchedule("search", options), costs);
    assert.deepEqual(validate(found.schedule), []);
    assert.ok(Math.max(...found.peakActivations) <= 1 + 1e-9);
    for (const name of ["gpipe", "1f1b", "interleaved", "hanayo", "zb-h1", "zb-v"]) {
      const rule = withRecomputation(withLists(createSchedule(name, size)));
      const { makespan, peakActivations } = analyze(rule, costs);
      assert.ok(makespanLowerBound(rule, costs, 1) <= makespan + 1e-9, name);
      const fits = Math.max(...peakActivations) <= 1 && name !== "interleaved" && name !== "hanayo";
      assert.ok(!fits || found.makespan <= makespan + 1e-9, name);
    }
  }));

Deno.test("a search with recomputation reads R into its order and its bound", () => {
  const options = { workers: 4, microBatches: 8, chunks: 1, activationLimit: 1 };
  const search = createSchedule("search", { ...options, recomputeAhead: true });
  const { makespan } = analyze(search), bound = makespanLowerBound(search, {}, 1);
  assert.ok(makespan < 39, `${makespan}`); // 1F1B with recomputation takes 39, without it 72
  assert.ok(bound <= makespan && bound >= 33, `${bound}`);
});

Deno.test("times of skip edges do not determine how fine the model can be cut", () => {
  const times = [1, [1]].map((skip) => {
    const costs = { forward: new Array<number>(8).fill(1), skip };
    const options = { workers: 4, microBatches: 8, edges: [{ from: 0, to: [3] }], costs };
    return analyze(createSchedule("search", options), costs).makespan;
  });
  assert.equal(times[1], times[0]);
});

const STRATEGY = { isSplit: true, isForwardFirst: false, pipeLimit: Infinity, patience: 0 };

Deno.test("a patient worker delays a weight part for an input that is about to arrive", () => {
  const base = sized("1f1b", 3, 4);
  const costs = { forward: 1, input: 0.5, weight: 2, send: 0.5 };
  const times = [0, 0.5, 1].map((patience) => {
    const strategy = { ...STRATEGY, patience, limits: [3, 3, 3] };
    const orders = greedyOrder(workloadOf(base, costs), strategy);
    return analyze(withOrders(base, "patient", orders), costs).makespan;
  });
  assert.deepEqual(times, [19.5, 19, 18]);
});

/** The search and the lower bound, compared with optima of an exhaustive search by another program. */

type Options = ScheduleOptions & { readonly activationLimit: number; readonly costs: Costs };

const file = new URL("../fixtures/schedules/optima.json", import.meta.url);
type Row =
  & Costs
  & Record<"seed" | "workers" | "microBatches" | "activationLimit" | "makespan", number>;

const rows = JSON.parse(await Deno.readTextFile(file)) as Row[];
const cases = rows.map(({ seed, workers, microBatches, activationLimit, makespan, ...costs }) => (
  { seed, options: { workers, microBatches, activationLimit, costs }, makespan }
));

Deno.test("the search reaches the optimum of every tiny case, and no bound is above it", () => {
  assert.ok(cases.length >= 100);
  let reached = 0;
  for (const { options, makespan } of cases) {
    const { costs, activationLimit } = options, where = JSON.stringify(options);
    const found = analyze(createSchedule("search", options), costs);
    assert.equal(found.makespan, makespan, where);
    assert.ok(Math.max(...found.peakActivations) <= activationLimit + 1e-9, where);
    assert.deepEqual(validate(found.schedule), []);
    const bound = makespanLowerBound(found.schedule, costs, activationLimit);
    assert.ok(makespan >= bound - 1e-9, `bound ${bound}: ${where}`);
    reached += Number(makespan <= bound + 1e-9);
  }
  assert.ok(reached >= cases.length / 3, `bounds reached in ${reached} of ${cases.length}`);
});

/** The least time that the exact search finds on some placements, without an initial order. */
function exactOptimum(places: Place[], options: Options, edges: readonly SkipEdge[] = []) {
  const { costs, activationLimit } = options;
  const limits = { costs, activations: activationLimit, weights: 1 };
  const times = searchedPlaces(places, options, limits).map(({ base, load, partLimits }) => {
    const linked = edges.length > 0 ? workloadOf(withEdges(base, edges), costs) : load;
    const found = exactOrder(linked, { limits: partLimits, below: Infinity, states: 50_000 });
    assert.ok(found.isProven);
    return found.makespan;
  });
  return Math.min(...times);
}

Deno.test("the exact search finds the optimum without an initial order", () => {
  for (const { options, makespan, seed } of cases) {
    const places = [...regularPlaces(options), ...irregularPlaces(options)];
    assert.equal(exactOptimum(places, options), makespan, `seed ${seed}`);
  }
});

Deno.test("states that differ only in messages in transit, also over a skip edge, are different", () => {
  const options = { workers: 2, microBatches: 2, activationLimit: 2 };
  const [forward, input, weight] = [[5, 3, 2, 6, 3, 4], [2, 5, 3, 2, 6, 2], [3, 5, 1, 6, 1, 2]];
  const three = { ...options, workers: 3, costs: { forward, input, weight, send: 3 } };
  assert.equal(exactOptimum([placeOf([0, 0, 1, 1, 2, 2])], three), 78);
  const edges = [{ from: 0, to: [2] }, { from: 1, to: [3] }];
  const found = (parts: number[], costs: Costs) =>
    exactOptimum([placeOf(parts)], { ...options, costs }, edges);
  // A search that counts inputs only once all have arrived finds 47 and 50.
  const costs = { forward: [3, 5, 2, 2], input: [1, 2, 4, 1], weight: [4, 2, 2, 1], skip: 8 };
  assert.equal(found([0, 0, 1, 1], costs), 45);
  const others = { forward: [4, 5, 1, 2], input: [1, 1, 5, 5], weight: [3, 2, 5, 5], skip: 7 };
  assert.equal(found([0, 1, 1, 0], others), 49);
});

Deno.test("with half of the memory the search is never longer than V-Half", () => {
  const uneven = [{}, { input: 1.2, weight: 0.8 }, { forward: 1, input: 1.5, weight: 0.7 }];
  const sizes = [[2, 4], [3, 6], ...atDepth([], [[4, 8], [6, 12]])] as const;
  for (const [workers, microBatches] of sizes) {
    for (const costs of uneven) {
      const size = { workers, microBatches, costs };
      const rule = analyze(createSchedule("v-half", size), costs);
      const activationLimit = Math.max(...rule.peakActivations);
      const found = analyze(createSchedule("search", { ...size, activationLimit }), costs);
      assert.ok(found.makespan <= rule.makespan + 1e-9, JSON.stringify(size));
      assert.ok(Math.max(...found.peakActivations) <= activationLimit, JSON.stringify(size));
    }
  }
});
