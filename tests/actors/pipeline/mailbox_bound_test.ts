/** A worker's mailbox holds what its bound says, in any order of messages and for any schedule. */

import assert from "node:assert/strict";
import { eagerStages } from "../../../actors/commit/eager_stages.ts";
import { mailboxBound } from "../../../actors/pipeline/mailbox_bound.ts";
import { pipelineSupervisor } from "../../../actors/pipeline/supervisor/supervisor.ts";
import type { SupervisorInit } from "../../../actors/pipeline/supervisor/supervisor_init.ts";
import { UPDATE_POLICIES } from "../../../actors/pipeline/update_policy.ts";
import { prepareRehearsal, type RehearsalPlan } from "../../../actors/rehearsal/plan.ts";
import { rehearsal } from "../../../actors/rehearsal/rehearsal.ts";
import { workerInits } from "../../../actors/run/engines/worker_inits.ts";
import { pos, random, simulate, type Strategy } from "../../../testing.ts";
import { scheduleNames } from "../../../schedules/mod.ts";

/** What the supervisor of a plan is made from. */
function initOf(plan: RehearsalPlan): SupervisorInit {
  const { options } = prepareRehearsal(plan), { schedule, sync } = options;
  return {
    workers: workerInits(options, "local", undefined),
    isolate: "local",
    injectionLimit: UPDATE_POLICIES[schedule.updates].inFlight(schedule),
    eagerStages: eagerStages(schedule, sync),
    updates: schedule.updates,
  };
}

/** Lets one actor handle nothing for as long as any other can do something. */
const starving = (id: string): Strategy => ({
  name: `starving ${id}`,
  begin: () => true,
  choose: (candidates) => Math.max(0, candidates.findIndex(({ actor }) => actor !== id)),
});

/** The most messages that waited for each worker, over all these orders. */
async function deepest(plan: RehearsalPlan, strategies: readonly Strategy[]): Promise<number[]> {
  const most = initOf(plan).workers.map(() => 0);
  for (const [seed, strategy] of strategies.entries()) {
    const run = await simulate({ seed, strategy, configuration: plan }, async (world) => {
      world.invariant("depth", ({ waiting }) => {
        for (const w of most.keys()) most[w] = Math.max(most[w]!, waiting(`worker-${w}`));
      });
      return await rehearsal(world);
    });
    assert.equal(run.failure, undefined, `${strategy.name}, seed ${seed}: ${run.failure?.message}`);
  }
  return most;
}

/** Without flushes many steps are under way, the more the smaller they are. */
const UNFLUSHED: Readonly<Record<string, RehearsalPlan>> = {
  "pipedream": { schedule: "pipedream", microBatches: 1, steps: 12, pauseEvery: 12 },
  "pipedream-2bw": { schedule: "pipedream-2bw", microBatches: 4, steps: 4, pauseEvery: 4 },
};

for (const schedule of scheduleNames()) {
  Deno.test(`no order of messages of ${schedule} fills a mailbox beyond its bound`, async () => {
    const flushed = { schedule, steps: 1, pauseEvery: 1 }, unflushed = UNFLUSHED[schedule];
    const plans = unflushed ? [unflushed] : [flushed, { ...flushed, sync: "eager" } as const];
    for (const plan of plans) {
      const init = initOf(plan), bounds = init.workers.map((worker) => mailboxBound(worker, init));
      const starved = init.workers.map((_, w) => starving(`worker-${w}`));
      const most = await deepest(plan, [random(), pos(), ...starved]);
      const what = `${JSON.stringify(plan)}: ${most} of ${bounds}`;
      assert.ok(most.every((depth, w) => depth <= bounds[w]!), what);
      // It is a bound, and no guess: mailboxes do get full, to a half at least.
      if (plan === plans[0]) assert.ok(Math.max(...most) >= Math.max(...bounds) / 2, what);
    }
  });
}

Deno.test("the supervisor gives each worker a mailbox of its bound, and no more", () => {
  for (const plan of [{ schedule: "chimera" }, { schedule: "pipedream" }] as RehearsalPlan[]) {
    const init = initOf(plan), capacities: (number | undefined)[] = [];
    const spawn = (_spec: unknown, _init: unknown, { capacity }: { capacity?: number }) => {
      capacities.push(capacity);
      return {};
    };
    const nothing = () => {};
    const ctx = { spawn, watch: nothing, expose: nothing, deferReply: nothing, send: nothing };
    pipelineSupervisor(ctx as never, init);
    assert.deepEqual(capacities, init.workers.map((worker) => mailboxBound(worker, init)));
  }
});
