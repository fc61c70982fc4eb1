import { refuses } from "./cases.ts";
import assert from "node:assert/strict";
import {
  analyze,
  type Costs,
  createSchedule,
  makespanLowerBound,
  validate,
  withEdges,
  withLists,
  withOrders,
} from "../../schedules/mod.ts";
import { searchedPlaces } from "../../schedules/search/candidates.ts";
import { exactOrder } from "../../schedules/search/exact.ts";
import { greedyOrder } from "../../schedules/search/greedy.ts";
import { irregularPlaces, placeOf, regularPlaces } from "../../schedules/search/places.ts";
import { workloadOf } from "../../schedules/search/workload.ts";
import fc from "../fast_check.ts";

Deno.test("whatever the limits and costs, the list scheduler neither gets stuck nor breaks them", () => {
  const cost = fc.double({ min: 0.1, max: 3, noNaN: true });
  const bases = ["1f1b", "interleaved", "hanayo", "chimera", "dualpipe"];
  fc.assert(
    fc.property(
      fc.constantFrom(...bases),
      fc.integer({ min: 2, max: 8 }),
      fc.integer({ min: 0, max: 6 }),
      fc.tuple(cost, cost, cost, cost),
      fc.record({
        isSplit: fc.boolean(),
        isForwardFirst: fc.boolean(),
        patience: fc.constantFrom(0, 0.5, 1),
        pipeLimit: fc.constantFrom(2, Infinity),
      }),
      (name, half, extra, [forward, input, weight, send], choice) => {
        const workers = name === "chimera" || name === "dualpipe" ? 2 * Math.ceil(half / 2) : half;
        const base = createSchedule(name, { workers, microBatches: 2 * workers });
        const costs = { forward, input, weight, send };
        const held = Math.max(...base.placement.map((stages) => stages.length));
        const limits = new Array(workers).fill(held + extra);
        const orders = greedyOrder(workloadOf(base, costs), { ...choice, limits });
        const made = withOrders(base, "greedy", orders);
        assert.deepEqual(validate(made, { activations: held + extra }), []);
      },
    ),
    { numRuns: 300 },
  );
});

Deno.test("a local search makes shorter what rules and list scheduling give", () => {
  const search = (costs: Costs, workers: number, microBatches: number) => {
    const options = { workers, microBatches, activationLimit: 3, costs };
    return analyze(createSchedule("search", options), costs).makespan;
  };
  // Without the local search they take 28, 17 and 30.75.
  assert.ok(search({}, 4, 8) <= 27);
  assert.ok(search({ forward: 1, input: 1.5, weight: 0.5 }, 3, 5) <= 16.75);
  assert.ok(search({ forward: 1, input: 1.5, weight: 0.5 }, 4, 8) <= 29.25);
});

Deno.test("a patient worker lets a weight part wait for an input that is about to come", () => {
  const base = createSchedule("1f1b", { workers: 3, microBatches: 4 });
  const costs = { forward: 1, input: 0.5, weight: 2, send: 0.5 };
  const times = [0, 0.5, 1].map((patience) => {
    const strategy = { isSplit: true, isForwardFirst: false, pipeLimit: Infinity, patience };
    const orders = greedyOrder(workloadOf(base, costs), { ...strategy, limits: [3, 3, 3] });
    return analyze(withOrders(base, "patient", orders), costs).makespan;
  });
  assert.deepEqual(times, [19.5, 19, 18]);
});

Deno.test("a limit that does not leave room for every stage of a worker is refused", () => {
  const base = createSchedule("interleaved", { workers: 2, microBatches: 2 });
  const strategy = { isSplit: true, isForwardFirst: false, pipeLimit: Infinity, patience: 0 };
  refuses(
    () => greedyOrder(workloadOf(base), { ...strategy, limits: [1, 1] }),
    /Cannot schedule worker 0: .* must be at least 2, one for each of its stages/,
  );
});

/** The search and the lower bound against optima that another program found by trying everything. */

interface Case {
  readonly seed: number;
  readonly workers: number;
  readonly microBatches: number;
  readonly activationLimit: number;
  readonly send: number;
  readonly forward: readonly number[];
  readonly input: readonly number[];
  readonly weight: readonly number[];
  readonly makespan: number;
}

const file = new URL("../fixtures/schedules/optima.json", import.meta.url);
const cases = JSON.parse(await Deno.readTextFile(file)) as Case[];

function found({ forward, input, weight, send, ...options }: Case) {
  const { workers, microBatches, activationLimit } = options;
  const costs: Costs = { forward, input, weight, send };
  const schedule = withLists(
    createSchedule("search", { workers, microBatches, activationLimit, costs }),
  );
  return { costs, ...analyze(schedule, costs) };
}

Deno.test("the search reaches the optimum of every tiny case, within its limits", () => {
  assert.ok(cases.length >= 100);
  for (const one of cases) {
    const { schedule, makespan, peakActivations } = found(one);
    assert.equal(makespan, one.makespan, JSON.stringify(one));
    assert.ok(Math.max(...peakActivations) <= one.activationLimit + 1e-9, JSON.stringify(one));
    assert.deepEqual(validate(schedule), []);
  }
});

Deno.test("the exact search finds it without an order to begin with", () => {
  for (const { forward, input, weight, send, makespan, ...options } of cases) {
    const costs = { forward, input, weight, send };
    const limits = { costs, activations: options.activationLimit, weights: 1 };
    const all = { ...options, costs };
    const places = [...regularPlaces(all), ...irregularPlaces(all)];
    const times = searchedPlaces(places, all, limits).map(({ load, partLimits }) => {
      const found = exactOrder(load, { limits: partLimits, below: Infinity, states: 50_000 });
      assert.ok(found.isProven);
      return found.makespan;
    });
    assert.equal(Math.min(...times), makespan, `seed ${options.seed}`);
  }
});

Deno.test("states that differ only in what is on its way are not taken for the same", () => {
  const costs = {
    forward: [5, 3, 2, 6, 3, 4],
    input: [2, 5, 3, 2, 6, 2],
    weight: [3, 5, 1, 6, 1, 2],
    send: 3,
  };
  const options = { workers: 3, microBatches: 2, costs };
  const limits = { costs, activations: 2, weights: 1 };
  const [place] = searchedPlaces([placeOf([0, 0, 1, 1, 2, 2])], options, limits);
  const { load, partLimits } = place!;
  const found = exactOrder(load, { limits: partLimits, below: Infinity, states: 50_000 });
  assert.deepEqual([found.makespan, found.isProven], [78, true]);
});

Deno.test("nor are states that differ only in what is on its way over a skip edge", () => {
  const edges = [{ from: 0, to: [2] }, { from: 1, to: [3] }];
  const found = (parts: number[], costs: Costs) => {
    const options = { workers: 2, microBatches: 2, costs };
    const limits = { costs, activations: 2, weights: 1 };
    const [place] = searchedPlaces([placeOf(parts)], options, limits);
    const load = workloadOf(withEdges(place!.base, edges), costs);
    return exactOrder(load, { limits: place!.partLimits, below: Infinity, states: 50_000 });
  };
  // A search that looks at inputs only where all are there finds 47 and 50.
  const costs = { forward: [3, 5, 2, 2], input: [1, 2, 4, 1], weight: [4, 2, 2, 1], skip: 8 };
  assert.equal(found([0, 0, 1, 1], costs).makespan, 45);
  const others = { forward: [4, 5, 1, 2], input: [1, 1, 5, 5], weight: [3, 2, 5, 5], skip: 7 };
  assert.equal(found([0, 1, 1, 0], others).makespan, 49);
});

Deno.test("no optimum is below the lower bound of its placement, and many are on it", () => {
  let reached = 0;
  for (const one of cases) {
    const { schedule, costs } = found(one);
    const bound = makespanLowerBound(schedule, costs, one.activationLimit);
    assert.ok(one.makespan >= bound - 1e-9, `bound ${bound}: ${JSON.stringify(one)}`);
    if (one.makespan <= bound + 1e-9) reached++;
  }
  assert.ok(reached >= cases.length / 3, `reached in ${reached} of ${cases.length}`);
});

Deno.test("a case that was known to be weak takes 56, where a line of two stages takes 61", () => {
  const [forward, input, weight] = [[3, 4, 4, 2], [1, 1, 2, 3], [3, 5, 5, 2]];
  const options = { workers: 2, microBatches: 3, activationLimit: 2 };
  const costs = { forward, input, weight };
  const time = (more: { chunks?: number }) =>
    analyze(createSchedule("search", { ...options, ...more, costs }), costs).makespan;
  assert.equal(time({}), 56);
  assert.equal(time({ chunks: 1 }), 61);
});

Deno.test("at half of the memory the search is never longer than V-Half", () => {
  for (const [workers, microBatches] of [[2, 4], [3, 6], [4, 8], [6, 12]] as const) {
    for (
      const costs of [{}, { input: 1.2, weight: 0.8 }, { forward: 1, input: 1.5, weight: 0.7 }]
    ) {
      const rule = analyze(createSchedule("v-half", { workers, microBatches, costs }), costs);
      const activationLimit = Math.max(...rule.peakActivations);
      const options = { workers, microBatches, costs, activationLimit };
      const { makespan, peakActivations } = analyze(createSchedule("search", options), costs);
      assert.ok(makespan <= rule.makespan + 1e-9, JSON.stringify(options));
      assert.ok(Math.max(...peakActivations) <= activationLimit, JSON.stringify(options));
    }
  }
});
