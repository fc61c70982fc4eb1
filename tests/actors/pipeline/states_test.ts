/** A message that comes in a state in which it has no meaning ends its receiver, which says so. */

import assert from "node:assert/strict";
import type { ActorRef, Message } from "../../../actors/mod.ts";
import type { WorkerMessage } from "../../../actors/pipeline/protocol.ts";
import { SUPERVISOR } from "../../../actors/pipeline/supervisor/supervisor.ts";
import {
  FLUSHED_SUPERVISOR,
  SUPERVISOR_MESSAGES,
  UNFLUSHED_SUPERVISOR,
} from "../../../actors/pipeline/supervisor/supervisor_messages.ts";
import type { SupervisorState } from "../../../actors/pipeline/supervisor/supervisor_states.ts";
import { WORKER } from "../../../actors/pipeline/worker/worker.ts";
import {
  FLUSHED_WORKER,
  UNFLUSHED_WORKER,
  WORKER_MESSAGES,
} from "../../../actors/pipeline/worker/worker_messages.ts";
import type { WorkerState } from "../../../actors/pipeline/worker/worker_states.ts";
import { prepareRehearsal, type RehearsalPlan } from "../../../actors/rehearsal/plan.ts";
import type { Engine } from "../../../actors/run/engines/engine.ts";
import { openPipeline } from "../../../actors/run/engines/pipeline.ts";
import { workerInits } from "../../../actors/run/engines/worker_inits.ts";
import { type Run, simulate, type World } from "../../../testing.ts";

const FLUSHED: RehearsalPlan = { schedule: "gpipe", workers: 1, microBatches: 1, replicas: 1 };
const UNFLUSHED: RehearsalPlan = { ...FLUSHED, schedule: "pipedream" };

/** An actor that takes some messages, and does nothing. */
const DEAF = `data:text/javascript,export const deaf = (ctx, types) =>
  Object.fromEntries(types.map((type) => [type, () => {}]));`;

/** Handles messages one by one until an actor is in a state. */
async function until(world: World<undefined>, id: string, wanted: string): Promise<void> {
  let state: string | undefined;
  world.invariant("look", (view) => void (state = view.state<{ state: string }>(id)?.state));
  for (let n = 0; n < 100; n++) {
    await world.settle(1);
    if (state === wanted) return;
  }
  throw new Error(`${id} must get to ${wanted}, and is ${state}`);
}

/** Sends a message to an actor that is in a state. */
async function send(world: World<undefined>, to: ActorRef, type: string): Promise<void> {
  world.system.send(to as ActorRef<Message>, { type }, { lane: "control" });
  await world.settle();
}

/** Brings a worker, alone, to a state; then a message comes. */
function tellWorker(plan: RehearsalPlan, state: WorkerState, type: string): Promise<Run> {
  return simulate({}, async (world) => {
    const { system } = world, { options, requests } = prepareRehearsal(plan);
    const spec = { module: DEAF, export: "deaf" };
    const supervisor = system.spawn<typeof SUPERVISOR_MESSAGES, Message>(
      spec,
      SUPERVISOR_MESSAGES,
      { id: "supervisor" },
    );
    const [init] = workerInits(options, "local", undefined);
    const worker = system.spawn(WORKER, init!, { id: "worker-0" });
    const [fields] = requests[0]!.microBatches, share = { first: 0, pipeOf: [0] };
    const updates = { every: 1, first: 1, learningRate: 1 };
    const steps: readonly [WorkerState, WorkerMessage | undefined][] = [
      ["connecting", undefined],
      ["idle", { type: "Connect", supervisor, workers: [worker] }],
      ["computing", { type: "Begin", round: 1, share, lossScales: [1], updates }],
      ["reducing", { type: "Inject", microBatch: 0, fields: fields!, isEvaluation: false }],
      ["committing", { type: "Commit", update: 1, learningRate: 1, gradientScale: 1 }],
    ];
    for (const [next, message] of steps) {
      if (message && (plan === FLUSHED || next !== "committing")) system.send(worker, message);
      if (plan === FLUSHED || next !== "reducing") await until(world, "worker-0", next);
      if (next === state) return await send(world, worker, type);
    }
  });
}

/** What brings a supervisor to its states. */
const WAYS: Readonly<Record<Exclude<SupervisorState, "lost">, (engine: Engine) => unknown>> = {
  starting: () => {},
  idle: () => {},
  stepping: () => {},
  deciding: () => {},
  ending: () => {},
  draining: (engine) => engine.drain!(),
  evaluating: (engine) => engine.evaluate([{ rows: new Float32Array(24) }]),
  saving: (engine) => engine.save(),
};

/** Brings a pipeline to a state of its supervisor; then a message comes. */
function tellSupervisor(plan: RehearsalPlan, state: SupervisorState, type: string): Promise<Run> {
  return simulate({}, async (world) => {
    const { options, requests } = prepareRehearsal(plan === FLUSHED ? { ...plan, clip: 1 } : plan);
    let supervisor: ActorRef | undefined;
    const system: typeof world.system = {
      ...world.system,
      spawn(spec, init, how) {
        const ref = world.system.spawn(spec, init, how);
        if (spec.export === SUPERVISOR.export) supervisor = ref;
        return ref;
      },
    };
    const opening = openPipeline({ ...options, system }, "local");
    opening.catch(() => {});
    if (state !== "starting") {
      await world.settle();
      const engine = await opening,
        quietly = (going: unknown) => Promise.resolve(going).catch(() => {});
      if (["stepping", "deciding", "ending", "draining"].includes(state)) {
        quietly(engine.step(requests[0]!));
      }
      quietly(WAYS[state as keyof typeof WAYS](engine));
    }
    if (state !== "idle") await until(world, "supervisor", state);
    await send(world, supervisor!, type);
  });
}

async function assertRefused(run: Promise<Run>, who: string, state: string, type: string) {
  const { failure } = await run, message = failure?.message ?? "nothing failed";
  assert.match(
    message,
    new RegExp(`Cannot handle ${type}: the ${who} must be [\\w ]+, received it while ${state}$`),
    `${state}, ${type}: ${message}`,
  );
}

/** Messages that must be refused, whatever the tables say. */
const SENSELESS: readonly [RehearsalPlan, WorkerState, WorkerMessage["type"]][] = [
  [FLUSHED, "connecting", "Begin"],
  [FLUSHED, "idle", "Gradient"],
  [FLUSHED, "idle", "Commit"],
  [FLUSHED, "computing", "Begin"],
  [FLUSHED, "computing", "Commit"],
  [FLUSHED, "computing", "Save"],
  [FLUSHED, "reducing", "Dispatch"],
  [FLUSHED, "reducing", "StepBucket"],
  [FLUSHED, "committing", "Abort"],
  [FLUSHED, "committing", "Reduce"],
  [UNFLUSHED, "computing", "Commit"],
  [UNFLUSHED, "computing", "StepBucket"],
  [UNFLUSHED, "committing", "Dispatch"],
  [UNFLUSHED, "committing", "Save"],
];

Deno.test("what a worker cannot have been sent then, it refuses", async () => {
  for (const [plan, state, type] of SENSELESS) {
    await assertRefused(tellWorker(plan, state, type), "worker", state, type);
  }
});

for (const [plan, table] of [[FLUSHED, FLUSHED_WORKER], [UNFLUSHED, UNFLUSHED_WORKER]] as const) {
  Deno.test(`a worker of ${plan.schedule} refuses what has no meaning in its state, in each`, async () => {
    for (const [state, types] of Object.entries(table) as [WorkerState, readonly string[]][]) {
      if (types.length === 0) continue;
      for (const type of WORKER_MESSAGES.filter((one) => !types.includes(one))) {
        await assertRefused(tellWorker(plan, state, type), "worker", state, type);
      }
    }
  });
}

for (
  const [plan, table] of [
    [FLUSHED, FLUSHED_SUPERVISOR],
    [UNFLUSHED, UNFLUSHED_SUPERVISOR],
  ] as const
) {
  Deno.test(`a supervisor of ${plan.schedule} refuses what has no meaning in its state, in each`, async () => {
    for (const [state, types] of Object.entries(table) as [SupervisorState, readonly string[]][]) {
      if (types.length === 0) continue;
      for (const type of SUPERVISOR_MESSAGES.filter((one) => !types.includes(one))) {
        await assertRefused(tellSupervisor(plan, state, type), "supervisor", state, type);
      }
    }
  });
}
