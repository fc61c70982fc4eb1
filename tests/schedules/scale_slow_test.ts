/** Schedules of thousands of workers. The tests count work; `deno task bench` measures seconds. */

import assert from "node:assert/strict";
import { contests, hold, searchTable } from "../../bench/search.ts";
import {
  type Action,
  analyze,
  createSchedule,
  modelOfCosts,
  type Schedule,
  simulateStep,
  type StepPolicy,
  validate,
  withLists,
} from "../../schedules/mod.ts";
import { atDepth } from "../depth.ts";

Deno.test("a schedule of thousands of workers and micro-batches fits into 2 GB", () => {
  const size = atDepth(1024, 2048), before = Deno.memoryUsage().rss;
  const schedule = withLists(createSchedule("1f1b", { workers: size, microBatches: size }));
  assert.deepEqual(validate(schedule), []);
  const { makespan, peakActivations } = analyze(schedule);
  assert.equal(makespan, 3 * (2 * size - 1));
  assert.equal(peakActivations[0], size);
  const gigabytes = (Deno.memoryUsage().rss - before) / 1e9;
  assert.ok(gigabytes < atDepth(0.5, 2), `took ${gigabytes.toFixed(2)} GB`);
});

/** The schedule with policies that count their calls and offers. */
function counted(schedule: Schedule) {
  const work = { calls: 0, offers: 0 };
  const policy = (worker: number): StepPolicy => {
    const own = schedule.policy(worker), next = own.next.bind(own);
    return Object.assign(own, {
      next(ready: Action[]) {
        work.calls++;
        work.offers += ready.length;
        return next(ready);
      },
    });
  };
  return { schedule: { ...schedule, policy }, work };
}

Deno.test("the work of a simulated step grows with the number of its actions", () => {
  for (const name of ["1f1b", "chimera", "message-driven"]) {
    for (const workers of atDepth([32, 128], [64, 1024])) {
      const microBatches = 2 * workers, actions = 2 * workers * microBatches;
      const order = name === "message-driven" ? { order: "backward-first" } as const : {};
      const { schedule, work } = counted(createSchedule(name, { workers, microBatches, ...order }));
      const model = modelOfCosts(schedule, { send: 0.1 });
      const step = simulateStep({ ...model, controlMs: 0.1, closing: {}, replicas: 8 });
      assert.ok(step.makespanMs > step.computedMs && step.computedMs > 3 * microBatches, name);
      assert.ok(work.calls <= 2.2 * actions, `${name}: ${work.calls} calls for ${actions} actions`);
      assert.ok(work.offers <= 2.2 * actions, `${name}: ${work.offers} offers looked at`);
    }
  }
});

Deno.test("a search of 128 workers and 512 micro-batches takes no longer than ZB-V", () => {
  const size = atDepth({ workers: 16, microBatches: 64 }, { workers: 128, microBatches: 512 });
  const schedule = withLists(createSchedule("search", size));
  assert.deepEqual(validate(schedule), []);
  const byRule = analyze(createSchedule("zb-v", size)).makespan;
  assert.ok(analyze(schedule).makespan <= byRule);
});

Deno.test("search is never worse than the best schedule by rule, and often better", () => {
  // Each size, and other costs with each.
  const some = contests().filter((_, i) => i % atDepth(7, 1) === 0);
  const outcomes = some.map((contest) => {
    const outcome = hold(contest);
    const { where, rule, makespan, peak, bound } = outcome;
    assert.ok(peak <= contest.activationLimit, `${where}: over the limit`);
    assert.ok(makespan <= rule.makespan + 1e-9, `${where}: ${makespan} > ${rule.makespan}`);
    assert.ok(makespan >= bound - 1e-9, `${where}: below its lower bound`);
    return outcome;
  });
  const better = outcomes.filter(({ rule, makespan }) => makespan < rule.makespan - 1e-6).length;
  assert.ok(outcomes.length >= atDepth(5, 24));
  assert.ok(better >= outcomes.length / 3, `better in ${better}:\n${searchTable(outcomes)}`);
});
