import assert from "node:assert/strict";
import { explore, type ExploreOptions, pct, pos, random, type Scenario } from "../../../testing.ts";
import type { RehearsalPlan } from "../../../actors/mod.ts";
import { rehearsal, type Rehearsed } from "../../../actors/rehearsal/rehearsal.ts";
import { type Bug, withBug } from "./planted_workers.ts";

/** Four copies of each stage: of two, the order does not matter. */
const CHIMERA: RehearsalPlan = { schedule: "chimera", workers: 2, microBatches: 4 };

/** Steps follow each other without a flush. */
const PIPEDREAM: RehearsalPlan = { schedule: "pipedream", workers: 2, microBatches: 4, steps: 3 };

/** Runs in which each strategy must find each bug. */
const MAX_RUNS = 200;

interface Planted {
  readonly bug: Bug;
  readonly options: ExploreOptions<RehearsalPlan>;
  /** What the failure says. */
  readonly says: RegExp;
}

const PLANTED: readonly Planted[] = [
  {
    bug: "arrivalOrder",
    options: { configuration: CHIMERA },
    says: /the weights must be the serial [0-9a-f]{64}, received/,
  },
  {
    bug: "earlyStep",
    options: {
      configuration: { ...CHIMERA, sync: "eager", mayLose: true },
      faults: { kinds: ["site"] },
    },
    says: /Cannot handle Commit: the worker must be reducing, received it while computing/,
  },
  { bug: "doubleStep", options: { configuration: CHIMERA }, says: /worker-\d failed in step 1/ },
  {
    bug: "doubleStep",
    options: { configuration: { ...PIPEDREAM, mayLose: true } },
    says: /Cannot handle StepBucket: the worker must be committing, received it while/,
  },
  {
    bug: "newestWeights",
    options: { configuration: { ...PIPEDREAM, schedule: "pipedream-2bw" } },
    says: /the weights must be the serial [0-9a-f]{64}, received/,
  },
  {
    bug: "doubleCredit",
    options: { configuration: PIPEDREAM },
    says: /replica 0 has 4 in flight, the limit is 3/,
  },
  {
    bug: "doubleCredit",
    options: { configuration: { ...CHIMERA, schedule: "message-driven", replicas: 1 } },
    says: /replica 0 has 3 in flight, the limit is 2/,
  },
  {
    // What is saved, and compared with the serial loop, are the first copies.
    bug: "driftingCopy",
    options: { configuration: CHIMERA },
    says: /copy \d of stage \d has other weights than the first/,
  },
];

const planted = (bug: Bug): Scenario<Rehearsed, RehearsalPlan> => (world) =>
  rehearsal({ ...world, system: withBug(world.system, bug) });

for (const { bug, options, says } of PLANTED) {
  const { schedule } = options.configuration!;
  Deno.test(`${bug}, planted in the training actors under ${schedule}, is found by every strategy`, async () => {
    for (const make of [random, () => pct(3), pos]) {
      const strategy = make();
      const { failed } = await explore({ ...options, strategy, runs: MAX_RUNS }, planted(bug));
      assert.match(`${strategy.name}: ${failed?.failure.message}`, says);
    }
  });

  Deno.test(`${bug}, where it is not planted under ${schedule}, is not found`, async () => {
    const { failed } = await explore({ ...options, runs: 30 }, rehearsal);
    assert.equal(failed, undefined, JSON.stringify(failed?.failure));
  });
}
