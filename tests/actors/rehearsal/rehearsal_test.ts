import assert from "node:assert/strict";
import {
  type Exploration,
  explore,
  type FaultKind,
  pct,
  pos,
  random,
  simulate,
  simulationTest,
  type Strategy,
} from "../../../testing.ts";
import { type RehearsalPlan } from "../../../actors/mod.ts";
import { scheduleNames, type SkipEdge } from "../../../schedules/mod.ts";
import { smallerPlans } from "../../../actors/rehearsal/examples.ts";
import { rehearsal, rehearseSerially } from "../../../actors/rehearsal/rehearsal.ts";

/** A value that two later stages use, one that goes a stage further than the chain, and a mask. */
const EDGES: readonly SkipEdge[] = [
  { from: 0, to: [2, 3] },
  { from: 1, to: [3] },
  { from: 0, to: [1, 3], hasGradient: false },
];

/** 4 stages, 8 micro-batches and 2 replicas are what a plan has unless it says otherwise. */
const PLANS: readonly RehearsalPlan[] = [
  { schedule: "1f1b" },
  { schedule: "1f1b", steps: 2, sync: "eager" },
  { schedule: "chimera" },
  { schedule: "chimera", sync: "eager-opt", clip: 0.5 },
  { schedule: "hanayo", options: { waves: 2 } },
  { schedule: "message-driven", steps: 2 },
  { schedule: "message-driven", options: { order: "backward-first", pipelineLimit: 3 } },
  { schedule: "zb-h1" },
  { schedule: "1f1b", edges: EDGES, steps: 2, pauseEvery: 1 },
  { schedule: "chimera", edges: EDGES, sync: "eager" },
  { schedule: "zb-v", workers: 2, edges: EDGES },
  { schedule: "message-driven", edges: EDGES, options: { order: "backward-first" } },
  { schedule: "seq1f1b", options: { slices: 3 }, sync: "eager", steps: 2, pauseEvery: 1 },
  { schedule: "pipedream", steps: 3 },
  { schedule: "pipedream-2bw", steps: 4, pauseEvery: 2 },
];

const STRATEGIES: readonly (() => Strategy)[] = [random, () => pct(3), pos];

/** Runs of each plan and strategy: 2,000 of all, and some more. */
const RUNS = Math.ceil(2000 / (PLANS.length * STRATEGIES.length));

for (const plan of PLANS) {
  for (const make of STRATEGIES) {
    const strategy = make();
    simulationTest(
      `${RUNS} orders by ${strategy.name} of ${JSON.stringify(plan)} end with the serial weights`,
      { strategy, runs: RUNS, configuration: plan, smaller: smallerPlans },
      rehearsal,
    );
  }
}

Deno.test("schedules that add in another order have other weights, so a wrong order shows", async () => {
  const hashes = await Promise.all(
    ["1f1b", "chimera"].map((schedule) => rehearseSerially({ schedule })),
  );
  assert.notEqual(hashes[0], hashes[1]);
  assert.equal(hashes[0], await rehearseSerially({ schedule: "gpipe" }));
});

Deno.test("every schedule ends with the serial weights, also after a pause", async () => {
  for (const schedule of scheduleNames()) {
    const configuration = { schedule, steps: 2, pauseEvery: 1 };
    const { failed } = await explore({ configuration, runs: 4 }, rehearsal);
    assert.equal(failed, undefined, `${schedule}: ${JSON.stringify(failed?.failure)}`);
  }
});

const KINDS: readonly FaultKind[] = [
  "crash-before",
  "crash-amid",
  "crash-after",
  "stall",
  "slow-edge",
  "site",
];

/** Runs of each kind of fault. */
const FAULTY_RUNS = 100;

/** One object for each: what it prepares is kept for the next run. */
const FAULTY: readonly RehearsalPlan[] = [
  { schedule: "1f1b", steps: 2, edges: EDGES, mayLose: true },
  { schedule: "pipedream", steps: 3, pauseEvery: 2, mayLose: true },
];

for (const [plan, kind] of FAULTY.flatMap((plan) => KINDS.map((kind) => [plan, kind] as const))) {
  Deno.test(`a fault (${kind}) of ${plan.schedule} ends with the serial weights or a clear report, never in a hang`, async () => {
    const ends = { weights: 0, lost: 0, crashed: 0 };
    for (let seed = 0; seed < FAULTY_RUNS; seed++) {
      const run = await rehearseWith(plan, kind, seed);
      if (run.value?.weightsHash) ends.weights++;
      else if (run.value?.lost) {
        assert.match(run.value.lost, /^worker-\d( failed|.* stalled)/);
        ends.lost++;
      } else {
        // Nobody watches the supervisor but whoever made the system, and learns of its end.
        assert.equal(run.failure?.name, "InjectedCrash", JSON.stringify(run));
        assert.deepEqual(run.faults.map(({ target }) => target), ["supervisor"]);
        ends.crashed++;
      }
    }
    const isCrash = kind.startsWith("crash");
    assert.ok(ends.weights > 0, JSON.stringify(ends));
    assert.equal(ends.crashed > 0, isCrash, JSON.stringify(ends));
    assert.equal(ends.lost > 0, isCrash || kind === "site", JSON.stringify(ends));
  });
}

Deno.test("the supervisor crashed before any step, also while it waits, is no deadlock", async () => {
  const configuration: RehearsalPlan = {
    schedule: "1f1b",
    workers: 2,
    microBatches: 2,
    replicas: 1,
    mayLose: true,
  };
  const ends = { weights: 0, crashed: 0 };
  for (let step = 0; step < 150; step++) {
    const faults = [{ step, kind: "crash-before", target: "supervisor" }] as const;
    const run = await simulate(
      { seed: step, strategy: random(), configuration, faults },
      rehearsal,
    );
    if (run.failure) {
      assert.deepEqual([run.failure.kind, run.failure.name], ["actor", "InjectedCrash"], `${step}`);
      ends.crashed++;
    } else ends.weights++;
  }
  // The run is over before the later of these steps.
  assert.deepEqual(ends, { weights: 100, crashed: 50 });
});

function rehearseWith(configuration: RehearsalPlan, kind: FaultKind, seed: number) {
  return simulate({
    seed,
    strategy: random(),
    configuration,
    faults: { kinds: [kind], rate: 0.005 },
  }, rehearsal);
}

Deno.test("faults that are explored run twice alike", async () => {
  const explored: Exploration = await explore({
    configuration: FAULTY[0]!,
    faults: { kinds: ["stall", "slow-edge", "site"], max: 3 },
    runs: 50,
  }, rehearsal);
  assert.equal(explored.failed, undefined, JSON.stringify(explored.failed?.failure));
});
