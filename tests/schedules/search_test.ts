import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import { contests, hold, searchTable } from "../../bench/search.ts";
import { createSchedule, validate, withOrders } from "../../schedules/mod.ts";
import { greedyOrder, workloadOf } from "../../schedules/search/greedy.ts";

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

Deno.test("a limit that does not leave room for every stage of a worker is refused", () => {
  const base = createSchedule("interleaved", { workers: 2, microBatches: 2 });
  const strategy = { isSplit: true, isForwardFirst: false, pipeLimit: Infinity, patience: 0 };
  assert.throws(() => greedyOrder(workloadOf(base), { ...strategy, limits: [1, 1] }), {
    name: "RangeError",
    message: /Cannot schedule worker 0: .* must be at least 2, one for each of its stages/,
  });
});
