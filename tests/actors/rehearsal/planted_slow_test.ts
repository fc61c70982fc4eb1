/** Bugs that are planted in the real training actors are found, and not where they are not. */

import assert from "node:assert/strict";
import { atDepth } from "../../depth.ts";
import {
  type Check,
  explore,
  type ExploreOptions,
  pct,
  pos,
  random,
  type Scenario,
  type View,
  type World,
} from "../../../testing.ts";
import { smallerPlans } from "../../../actors/rehearsal/examples.ts";
import { addInvariants } from "../../../actors/rehearsal/invariants.ts";
import { prepareRehearsal } from "../../../actors/rehearsal/plan.ts";
import type { RehearsalPlan } from "../../../actors/mod.ts";
import { rehearsal, type Rehearsed } from "../../../actors/rehearsal/rehearsal.ts";
import { pipelineSupervisor, SUPERVISOR } from "../../../actors/pipeline/supervisor/supervisor.ts";
import type { SupervisorInit } from "../../../actors/pipeline/supervisor/supervisor_init.ts";
import { pipelineWorker, type WorkerView } from "../../../actors/pipeline/worker/worker.ts";
import type { WorkerInit } from "../../../actors/pipeline/worker/worker_init.ts";
import type { SupervisorMessage, WorkerMessage } from "../../../actors/pipeline/protocol.ts";
import { StandIn } from "../../../actors/pipeline/stand_in.ts";
import type { ActorFactory, Context, Message, System } from "../../../actors/runtime/mod.ts";

type Worker = ActorFactory<WorkerInit, WorkerMessage>;
type Supervisor = ActorFactory<SupervisorInit, SupervisorMessage>;

/** Adds the parts of a chunk in the order in which they arrive: the k-th to come is the k-th. */
export const arrivalOrder: Worker = async (ctx, init) => {
  const handlers = await pipelineWorker(ctx, init), come = new Map<string, number>();
  const { ReducePart } = handlers;
  return {
    ...handlers,
    ReducePart(message) {
      const { round, stage, rank, part } = message, size = init.copies[stage]!.length;
      if (part.phase !== "scatter") return ReducePart(message);
      const key = [round, stage, rank, part.chunk].join(), nth = come.get(key) ?? 0;
      come.set(key, nth + 1);
      const others = Array.from({ length: size }, (_, other) => other).filter((o) => o !== rank);
      return ReducePart({ ...message, part: { ...part, from: others[nth]! } });
    },
  };
};

/** Steps as soon as it has sums, without waiting for the votes of the other stages. */
export const earlyStep: Worker = async (ctx, init) => {
  const handlers = await pipelineWorker(ctx, init);
  let hasBegun = false;
  return {
    ...handlers,
    Begin(message) {
      hasBegun = false;
      return handlers.Begin(message);
    },
    async Reduce(message) {
      await handlers.Reduce(message);
      if (hasBegun) return;
      hasBegun = true;
      await handlers.Commit({ type: "Commit", update: 1, learningRate: 1, gradientScale: 1 });
    },
    Commit() {},
  };
};

/** A worker that sends the messages of one type twice. */
const sendingTwice = (type: Message["type"]): Worker => (ctx, init) => {
  const send: Context<WorkerMessage>["send"] = (to, message, options) => {
    ctx.send(to, message, options);
    if (message.type === type) ctx.send(to, message, options);
  };
  return pipelineWorker({ ...ctx, send }, init);
};

/** Asks twice for each bucket to be stepped. */
export const doubleStep: Worker = sendingTwice("StepBucket");

/** Gives each credit twice. */
export const doubleCredit: Worker = sendingTwice("Credit");

/** Takes its steps, but the weights of all copies of a stage but the first drift away. */
export const driftingCopy: Worker = async (ctx, init) => {
  let view: () => WorkerView;
  const expose = (read: () => unknown) => {
    view = read as typeof view;
    ctx.expose(read);
  };
  const handlers = await pipelineWorker({ ...ctx, expose }, init);
  return {
    ...handlers,
    async StepBucket(message) {
      await handlers.StepBucket(message);
      for (const { rank, kernels } of view().copies) {
        if (rank > 0 && kernels instanceof StandIn) (kernels.weights as Float32Array)[0]! += 1;
      }
    },
  };
};

/** Computes with the newest weights where those before them are asked for. */
export const newestWeights: Worker = async (ctx, init) => {
  const handlers = await pipelineWorker(ctx, init);
  return {
    ...handlers,
    Begin: (message) =>
      handlers.Begin({ ...message, updates: { ...message.updates!, version: undefined } }),
  };
};

/** Makes the supervisor, and workers with a bug. */
const supervising = (bug: string): Supervisor => (ctx, init) => {
  const spawn: typeof ctx.spawn = (spec, init, options) =>
    ctx.spawn({ ...spec, module: import.meta.url, export: bug }, init, options);
  return pipelineSupervisor({ ...ctx, spawn }, init);
};

export const supervisingArrivalOrder = supervising("arrivalOrder");
export const supervisingEarlyStep = supervising("earlyStep");
export const supervisingDoubleStep = supervising("doubleStep");
export const supervisingDoubleCredit = supervising("doubleCredit");
export const supervisingDriftingCopy = supervising("driftingCopy");
export const supervisingNewestWeights = supervising("newestWeights");

/** A system whose pipeline has a bug. */
function withBug(system: System, bug: string): System {
  const name = `supervising${bug[0]!.toUpperCase()}${bug.slice(1)}`;
  const planted = { module: import.meta.url, export: name };
  return {
    ...system,
    spawn: (spec, init, options) =>
      system.spawn(spec.export === SUPERVISOR.export ? planted : spec, init, options),
  };
}

/** Four copies of each stage: of two, the order does not matter. */
const CHIMERA: RehearsalPlan = { schedule: "chimera", workers: 2, microBatches: 4 };

/** Steps follow each other without a flush. */
const PIPEDREAM: RehearsalPlan = { schedule: "pipedream", workers: 2, microBatches: 4, steps: 3 };

/** Runs in which each strategy must find each bug. */
const MAX_RUNS = 200;

const SITES = { faults: { kinds: ["site"] } } as const;

const EARLY = { ...CHIMERA, sync: "eager", mayLose: true } as const;
const MESSAGES: RehearsalPlan = { ...CHIMERA, schedule: "message-driven", replicas: 1 };
const PIPEDREAM_2BW: RehearsalPlan = { ...PIPEDREAM, schedule: "pipedream-2bw" };

const OTHER_WEIGHTS = /the weights must be the serial [0-9a-f]{64}, received/;
const NOT_COMMITTING = /Cannot handle StepBucket: the worker must be committing, received it while/;

/** Each bug, where it is planted, what the failure says, and which faults it needs. */
const PLANTED: readonly [string, RehearsalPlan, says: RegExp, ExploreOptions?][] = [
  ["arrivalOrder", CHIMERA, OTHER_WEIGHTS],
  ["earlyStep", EARLY, /Commit: the worker must be reducing, received it while computing/, SITES],
  ["doubleStep", CHIMERA, /worker-\d failed in step 1/],
  ["doubleStep", { ...PIPEDREAM, mayLose: true }, NOT_COMMITTING],
  ["newestWeights", PIPEDREAM_2BW, OTHER_WEIGHTS],
  ["doubleCredit", PIPEDREAM, /replica 0 has 4 in flight, the limit is 3/],
  ["doubleCredit", MESSAGES, /replica 0 has 3 in flight, the limit is 2/],
  // What is saved, and compared with the serial loop, are the first copies.
  ["driftingCopy", CHIMERA, /copy \d of stage \d has other weights than the first/],
];

const planted = (bug: string): Scenario<Rehearsed, RehearsalPlan> => (world) =>
  rehearsal({ ...world, system: withBug(world.system, bug) });

for (const [bug, configuration, says, faults] of PLANTED) {
  const { schedule } = configuration, options = { ...faults, configuration };
  Deno.test(`${bug}, planted in the training actors under ${schedule}, is found by every strategy, and not where it is not`, async () => {
    for (const make of [random, () => pct(3), pos]) {
      const strategy = make();
      const { failed } = await explore({ ...options, strategy, runs: MAX_RUNS }, planted(bug));
      assert.match(`${strategy.name}: ${failed?.failure.message}`, says);
    }
    const { failed } = await explore({ ...options, runs: atDepth(9, 60) }, rehearsal);
    assert.equal(failed, undefined, JSON.stringify(failed?.failure));
  });
}

const IDLE = { state: "idle", stash: 0, ready: 0, copies: [] };

/** A step of an actor: what it did, what the actors then are, and how many messages wait for it. */
type Did = readonly [
  actor: string,
  name: string,
  states?: Record<string, object>,
  waiting?: number,
];

/** What the invariants find wrong with the steps of a pipeline of two workers. */
function problemOf(schedule: string, steps: readonly Did[]): string | undefined {
  const plan = { schedule, workers: 2, microBatches: 2, replicas: 1 }, checks: Check[] = [];
  const world = { invariant: (_: string, check: Check) => void checks.push(check) };
  addInvariants(world as unknown as World, prepareRehearsal(plan).options);
  for (const [actor, name, states = {}, waiting = 0] of steps) {
    const isAction = /\d/.test(name);
    const view = {
      ...{ actor, name: isAction ? name : "", type: isAction ? "Dispatch" : name },
      ...{ state: (id: string) => states[id], waiting: () => waiting },
    };
    for (const check of checks) {
      const problem = check(view as unknown as View);
      if (problem) return problem;
    }
  }
}

/** The end of a step, after which a worker is what it is. */
const ended = (worker: object, isCommitted = true, waiting = 0): Did[] =>
  ["stepping", "idle"].map((state) => [
    ...["supervisor", "Voted"] as const,
    { supervisor: { state, isCommitted }, "worker-1": { ...IDLE, ...worker } },
    waiting,
  ]);

const BUCKETS = [{ kernels: { buckets: [1, 2] } }], stepped: Did = ["worker-1", "StepBucket"];
const both = [stepped, stepped];

/** Steps, and what is wrong with them, if anything is. */
type Case = readonly [schedule: string, steps: readonly Did[], problem?: string];

const WRONG: readonly Case[] = [
  ["gpipe", ["0F0", "0F1", "0B1", "0B0"].map((name): Did => ["worker-0", name])],
  ["gpipe", [["worker-0", "0F0"], ["worker-0", "0F0"]], "0F0 ran twice"],
  ["gpipe", [["worker-0", "0F0"], ["worker-0", "0B1"]], "0B1 ran without its F"],
  ["zb-h1", [["worker-1", "1F0"], ["worker-1", "1W0"]], "1W0 ran without its I"],
  ...[0, 2].map((stash): Case => {
    const problem = `worker-0 holds ${stash} activations, its F − B is 1`;
    return ["gpipe", [["worker-0", "0F0", { "worker-0": { stash } }]], problem];
  }),
  ["gpipe", ended({})],
  ["gpipe", ended({ state: "reducing" }), "worker-1 is still reducing"],
  ["gpipe", ended({ stash: 1 }), "worker-1 keeps 1 activations and 0 inputs"],
  ["gpipe", ended({ ready: 1 }), "worker-1 keeps 0 activations and 1 inputs"],
  ["gpipe", ended({}, true, 3), "3 messages wait for worker-1"],
  ["gpipe", ended({}, false, 3)],
  ["gpipe", [...both, ...ended({ copies: BUCKETS })]],
  ["gpipe", [stepped, ...ended({ copies: BUCKETS })], "worker-1 stepped 1 of 2 buckets"],
  ["gpipe", [...both, ...ended({ copies: BUCKETS }, false)], "worker-1 stepped 2 of 0 buckets"],
];

Deno.test("each invariant says what is wrong as soon as it is", () => {
  for (const [schedule, steps, problem] of WRONG) {
    assert.equal(problemOf(schedule, steps), problem, JSON.stringify(steps));
  }
});

Deno.test("smaller plans are smaller, and such that they can be rehearsed", () => {
  const sizes = (plan: RehearsalPlan) =>
    smallerPlans(plan).map(({ workers, microBatches, replicas, steps }) =>
      [workers, microBatches, replicas, steps].join()
    );
  assert.deepEqual(sizes({ schedule: "1f1b" }), ["2,2,1,1", "2,4,1,1", "2,4,2,1", "4,4,2,1"]);
  const two = { schedule: "1f1b", workers: 2, microBatches: 4 };
  assert.deepEqual(sizes(two), ["2,2,1,1", "2,4,1,1"]);
  assert.deepEqual(sizes({ schedule: "pipedream" }), ["2,2,1,1", "2,4,1,1"]);
});

Deno.test("a plan that cannot be rehearsed is refused", () => {
  const wrong = { schedule: "seq1f1b", options: { slices: 5 } };
  const refusal = /slices must divide the 12 values of a sample, received 5/;
  assert.throws(() => prepareRehearsal(wrong), refusal);
});
