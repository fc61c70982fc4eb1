import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import { contests, hold, searchTable } from "../../bench/search.ts";
import { analyze, type Costs, createSchedule, validate, withOrders } from "../../schedules/mod.ts";
import { greedyOrder } from "../../schedules/search/greedy.ts";
import { workloadOf } from "../../schedules/search/workload.ts";

Deno.test("search is never worse than the best schedule by rule, and often better", () => {
  const outcomes = contests().map((contest) => {
    const outcome = hold(contest);
    const { where, rule, makespan, peak, bound } = outcome;
    assert.ok(peak <= contest.activationLimit, `${where}: over the limit`);
    assert.ok(makespan <= rule.makespan + 1e-9, `${where}: ${makespan} > ${rule.makespan}`);
    assert.ok(makespan >= bound - 1e-9, `${where}: below its lower bound`);
    return outcome;
  });
  const better = outcomes.filter(({ rule, makespan }) => makespan < rule.makespan - 1e-6).length;
  assert.ok(outcomes.length >= 24);
  assert.ok(better >= outcomes.length / 3, `better in ${better}:\n${searchTable(outcomes)}`);
});

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
  assert.throws(() => greedyOrder(workloadOf(base), { ...strategy, limits: [1, 1] }), {
    name: "RangeError",
    message: /Cannot schedule worker 0: .* must be at least 2, one for each of its stages/,
  });
});
