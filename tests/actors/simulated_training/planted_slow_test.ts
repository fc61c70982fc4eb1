/** Bugs planted in the real training actors are found, and no failure is reported without them. */

import assert from "node:assert/strict";
import { atDepth } from "../../depth.ts";
import {
  type Check,
  explore,
  pct,
  pos,
  random,
  type Scenario,
  type View,
  type World,
} from "../../../testing.ts";
import invariants from "./invariants.json" with { type: "json" };
import {
  prepareSimulation,
  simulatedTraining,
  type SimulatedTrainingResult,
  smallerPlans,
} from "../../../actors/simulated_training/simulated_training.ts";
import { addInvariants } from "../../../actors/simulated_training/invariants.ts";
import type { SimulatedTrainingOptions } from "../../../actors/simulated_training/simulated_training.ts";
import { pipelineSupervisor, SUPERVISOR } from "../../../actors/pipeline/supervisor.ts";
import type { SupervisorInit } from "../../../actors/pipeline/supervisor_state.ts";
import { pipelineWorker, type WorkerView } from "../../../actors/pipeline/worker.ts";
import type { WorkerInit } from "../../../actors/pipeline/worker_state.ts";
import type { SupervisorMessage, WorkerMessage } from "../../../actors/pipeline/protocol.ts";
import { FakeStage } from "../../../actors/simulated_training/fake_stage.ts";
import type { ActorFactory, Context, Message, System } from "../../../actors/runtime/mod.ts";

type Worker = ActorFactory<WorkerInit, WorkerMessage>;

/** Adds the parts of a chunk in their order of arrival. */
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

/** A worker that sends the messages of one type twice. */
const sendingTwice = (type: Message["type"]): Worker => (ctx, init) => {
  const send: Context<WorkerMessage>["send"] = (to, message, options) => {
    ctx.send(to, message, options);
    if (message.type === type) ctx.send(to, message, options);
  };
  return pipelineWorker({ ...ctx, send }, init);
};

export const doubleStep: Worker = sendingTwice("StepBucket");
export const doubleCredit: Worker = sendingTwice("Credit");

/** Runs its steps, but the weights of all copies of a stage except the first drift. */
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
        if (rank > 0 && kernels instanceof FakeStage) (kernels.weights as Float32Array)[0]! += 1;
      }
    },
  };
};

/** Makes the supervisor, and workers with a bug. */
export const supervising: ActorFactory<SupervisorInit & { bug: string }, SupervisorMessage> = (
  ctx,
  { bug, ...init },
) => {
  const spawn: typeof ctx.spawn = (spec, init, options) =>
    ctx.spawn({ ...spec, module: import.meta.url, export: bug }, init, options);
  return pipelineSupervisor({ ...ctx, spawn }, init);
};

/** A system whose pipeline has a bug. */
const withBug = (system: System, bug: string): System => ({
  ...system,
  spawn(spec, init, options) {
    if (spec.export !== SUPERVISOR.export) return system.spawn(spec, init, options);
    const planted = { module: import.meta.url, export: "supervising" };
    return system.spawn(planted, { ...init, bug }, options);
  },
});

/** Four copies of each stage: of two, the order does not matter. */
const CHIMERA: SimulatedTrainingOptions = { schedule: "chimera", workers: 2, microBatches: 4 };

/** Steps follow each other without a flush. */
const PIPEDREAM: SimulatedTrainingOptions = { ...CHIMERA, schedule: "pipedream", steps: 3 };

/** Its last micro-batches need credits. */
const MESSAGES: SimulatedTrainingOptions = {
  schedule: "message-driven",
  workers: 2,
  microBatches: 6,
  replicas: 1,
};

/** Each bug, where it is planted, and what the failure says. */
const PLANTED: readonly [string, SimulatedTrainingOptions, says: RegExp][] = [
  ["arrivalOrder", CHIMERA, /the weights must be the serial [0-9a-f]{64}, received/],
  ["doubleStep", CHIMERA, /worker-\d failed in step 1/],
  ["doubleStep", { ...PIPEDREAM, mayLose: true }, /Cannot handle StepBucket: the worker must be /],
  ["doubleCredit", PIPEDREAM, /replica 0 has 4 injected, the limit is 3/],
  ["doubleCredit", MESSAGES, /replica 0 has 5 injected, the limit is 4/],
  // Only the first copies are saved and compared with the serial loop.
  ["driftingCopy", CHIMERA, /copy \d of stage \d has other weights than the first/],
];

const planted =
  (bug: string): Scenario<SimulatedTrainingResult, SimulatedTrainingOptions> => (world) =>
    simulatedTraining({ ...world, system: withBug(world.system, bug) });

for (const [bug, configuration, says] of PLANTED) {
  Deno.test(`${bug}, planted in the training actors under ${configuration.schedule}, is found by every strategy, and not where it is not`, async () => {
    for (const make of [random, () => pct(3), pos]) {
      const strategy = make();
      const { failed } = await explore({ configuration, strategy, runs: 200 }, planted(bug));
      assert.match(`${strategy.name}: ${failed?.failure.message}`, says);
    }
    const { failed } = await explore({ configuration, runs: atDepth(9, 60) }, simulatedTraining);
    assert.equal(failed, undefined, JSON.stringify(failed?.failure));
  });
}

/** A pipeline of two workers: their actions, the state that the last action left, and the expected problem. */
interface Case {
  readonly schedule?: string;
  readonly did: string[];
  readonly left?: object;
  /** End of the step, if it has ended; only then is worker 1 checked. */
  readonly ended?: { isCommitted: boolean; waiting?: number };
  readonly problem?: string;
}

/** Returns the problem that the invariants report. */
function problemOf({ schedule = "gpipe", did, left, ended }: Case): string | undefined {
  const plan = { schedule, workers: 2, microBatches: 2, replicas: 1 }, checks: Check[] = [];
  const world = { invariant: (_: string, check: Check) => void checks.push(check) };
  addInvariants(world as unknown as World, prepareSimulation(plan).options);
  const look = (actor: string, name: string, states: object) => {
    const told = /\d/.test(name) ? { type: "Dispatch", name } : { type: name, name: "" };
    const state = (id: string) => Reflect.get(states, id), waiting = () => ended?.waiting ?? 0;
    const view = { actor, ...told, state, waiting } as unknown as View;
    return checks.map((check) => check(view)).find(Boolean) as string | undefined;
  };
  const idle = { state: "idle", stash: 0, ready: 0, copies: [], ...left };
  const problems = did.map((what) => {
    const [actor, name] = what.split(" ") as [string, string];
    return look(actor, name, left && !ended ? { [actor]: left } : {});
  });
  for (const state of ended ? ["stepping", "idle"] : []) {
    const supervisor = { state, isCommitted: ended!.isCommitted };
    problems.push(look("supervisor", "Voted", { supervisor, "worker-1": idle }));
  }
  return problems.find(Boolean);
}

Deno.test("each invariant reports a problem as soon as it occurs", () => {
  for (const one of invariants) assert.equal(problemOf(one), one.problem, JSON.stringify(one));
});

Deno.test("smaller options are smaller, and can be simulated", () => {
  const sizes = (plan: SimulatedTrainingOptions) =>
    smallerPlans(plan).map(({ workers, microBatches, replicas, steps }) =>
      [workers, microBatches, replicas, steps].join()
    );
  assert.deepEqual(sizes({ schedule: "1f1b" }), ["2,2,1,1", "2,4,1,1", "2,4,2,1", "4,4,2,1"]);
  const two = { schedule: "1f1b", workers: 2, microBatches: 4 };
  assert.deepEqual(sizes(two), ["2,2,1,1", "2,4,1,1"]);
  assert.deepEqual(sizes({ schedule: "pipedream" }), ["2,2,1,1", "2,4,1,1"]);
});

Deno.test("options that cannot be simulated are refused", () => {
  const wrong = { schedule: "seq1f1b", options: { slices: 5 } };
  const refusal = /slices must divide the 12 values of a sample, received 5/;
  assert.throws(() => prepareSimulation(wrong), refusal);
});
