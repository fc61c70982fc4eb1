/**
 * The messages of the pipeline: a message that is invalid in the receiver's state ends the receiver,
 * a worker's mailbox stays within its bound, evaluations keep to their limit, and policies are sent.
 */

import assert from "node:assert/strict";
import { eagerStages } from "../../../actors/gradients/sync.ts";
import type { ActorRef, Message } from "../../../actors/runtime/types.ts";
import { copiesOf } from "../../../actors/pipeline/layout.ts";
import { EmulatedLink } from "../../../actors/pipeline/links.ts";
import {
  allLosses,
  Evaluation,
  gather,
  mailboxBound,
  type SupervisorInit,
} from "../../../actors/pipeline/supervisor_state.ts";
import { policyData, restorePolicy, UPDATE_POLICIES } from "../../../actors/pipeline/step.ts";
import type { WorkerMessage } from "../../../actors/pipeline/protocol.ts";
import {
  flowHandlers,
  FLUSHED_SUPERVISOR,
  pipelineSupervisor,
  SUPERVISOR_MESSAGES,
  UNFLUSHED_SUPERVISOR,
} from "../../../actors/pipeline/supervisor.ts";
import {
  FLUSHED_WORKER,
  UNFLUSHED_WORKER,
  WORKER,
  WORKER_MESSAGES,
  type WorkerView,
} from "../../../actors/pipeline/worker.ts";
import { reducesAlone, type WorkerState } from "../../../actors/pipeline/worker_state.ts";
import {
  prepareSimulation,
  simulatedTraining,
  type SimulatedTrainingOptions,
} from "../../../actors/simulated_training/simulated_training.ts";
import { type Engine, workerInits } from "../../../actors/run/engine.ts";
import { openPipeline } from "../../../actors/run/pipeline.ts";
import { train } from "../../../actors/run/train.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { mlp } from "../../../kernels/mod.ts";
import {
  type Action,
  B,
  createSchedule,
  F,
  type Schedule,
  scheduleNames,
  sliced,
  withPolicy,
} from "../../../schedules/mod.ts";
import { pos, random, simulate, type Strategy, type World } from "../../../testing.ts";
import { assertSentences } from "../../console/refusals.ts";
import { atDepth } from "../../depth.ts";

const FLUSHED = { schedule: "gpipe", workers: 1, microBatches: 1, replicas: 1 };
const UNFLUSHED = { ...FLUSHED, schedule: "pipedream" };

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

/** An actor that accepts some messages and ignores them. */
const DEAF = `data:text/javascript,export const deaf = (ctx, types) =>
  Object.fromEntries(types.map((type) => [type, () => {}]));`;

/** Brings a worker, alone, to a state. */
async function bringWorker(world: World<undefined>, plan: SimulatedTrainingOptions, state: string) {
  const { system } = world, { options, requests } = prepareSimulation(plan);
  const spec = { module: DEAF, export: "deaf" };
  const id = "supervisor", types = SUPERVISOR_MESSAGES;
  const supervisor = system.spawn<typeof types, Message>(spec, types, { id });
  const [init] = workerInits(options, "local", undefined);
  const worker = system.spawn(WORKER, init!, { id: "worker-0" });
  const [fields] = requests[0]!.microBatches, share = { first: 0, pipeOf: [0] };
  const updates = { every: 1, first: 1, learningRate: 1 };
  const ways: Readonly<Record<WorkerState, WorkerMessage | undefined>> = {
    connecting: undefined,
    idle: { type: "Connect", supervisor, workers: [worker] },
    computing: { type: "Begin", round: 1, share, lossScales: [1], updates },
    reducing: { type: "Inject", microBatch: 0, fields: fields!, isEvaluation: false },
    committing: { type: "Commit", update: 1, learningRate: 1, gradientScale: 1 },
    frozen: { type: "Freeze" },
  };
  for (const [next, message] of Object.entries(ways)) {
    if (message && (plan === FLUSHED || next !== "committing")) system.send(worker, message);
    if (plan === FLUSHED || next !== "reducing") await until(world, "worker-0", next);
    if (next === state) break;
  }
  return worker;
}

/** Calls that bring a supervisor to states that a step does not reach. */
const WAYS: Readonly<Record<string, (engine: Engine) => unknown>> = {
  idle: () => {},
  draining: (engine) => engine.drain(),
  evaluating: (engine) => engine.evaluate([{ rows: new Float32Array(24) }]),
  saving: (engine) => engine.save(),
};

/** Brings a pipeline to a state of its supervisor, which is the first actor. */
async function bringSupervisor(
  world: World<undefined>,
  plan: SimulatedTrainingOptions,
  state: string,
) {
  const { options, requests } = prepareSimulation(plan === FLUSHED ? { ...plan, clip: 1 } : plan);
  const opening = openPipeline({ ...options, system: world.system }, "local");
  opening.catch(() => {});
  if (state !== "starting") {
    await world.settle();
    const engine = await opening;
    const quietly = (going: unknown) => void Promise.resolve(going).catch(() => {});
    if (!(state in WAYS) || state === "draining") quietly(engine.step(requests[0]!));
    quietly(WAYS[state]?.(engine));
  }
  if (state !== "idle") await until(world, "supervisor", state);
  return { id: "supervisor", isolate: 0, serial: 1 };
}

const TABLES = [
  [FLUSHED, "worker", FLUSHED_WORKER],
  [UNFLUSHED, "worker", UNFLUSHED_WORKER],
  [FLUSHED, "supervisor", FLUSHED_SUPERVISOR],
  [UNFLUSHED, "supervisor", UNFLUSHED_SUPERVISOR],
] as const;

/** States after the loss of a worker, in which other messages are dropped. */
const DROPPING = ["freezing", "frozen"];

Deno.test("a worker and a supervisor refuse each message that has no meaning in their state", async () => {
  const found: [string, string][] = [];
  for (const [plan, who, table] of TABLES) {
    const all: readonly string[] = who === "worker" ? WORKER_MESSAGES : SUPERVISOR_MESSAGES;
    const bring = who === "worker" ? bringWorker : bringSupervisor;
    for (const [state, types] of Object.entries<readonly string[]>(table)) {
      if (DROPPING.includes(state)) continue;
      for (const type of types.length === 0 ? [] : all.filter((type) => !types.includes(type))) {
        const { failure } = await simulate({}, async (world) => {
          const to: ActorRef = await bring(world, plan, state);
          world.system.send(to as ActorRef<Message>, { type }, { lane: "control" });
          await world.settle();
        });
        found.push([`${plan.schedule}, ${who}, ${state}: ${type}`, String(failure?.message)]);
      }
    }
  }
  await assertSentences("messages", found);
});

Deno.test("a worker picks an action when it has handled all messages that have arrived", async () => {
  const plan = { ...FLUSHED, microBatches: 2 }, { requests } = prepareSimulation(plan);
  const { failure } = await simulate({}, async (world) => {
    const worker = await bringWorker(world, plan, "computing");
    let ready: number | undefined;
    world.invariant("look", (view) => void (ready = view.state<WorkerView>("worker-0")?.ready));
    for (const [microBatch, fields] of requests[0]!.microBatches.entries()) {
      world.system.send(worker, { type: "Inject", microBatch, fields, isEvaluation: false });
      await world.settle(1);
      assert.equal(ready, microBatch + 1);
    }
  });
  assert.equal(failure, undefined);
});

/** Returns the supervisor's initial value for a plan. */
function initOf(plan: SimulatedTrainingOptions): SupervisorInit {
  const { options } = prepareSimulation(plan), { schedule, sync } = options;
  const workers = workerInits(options, "local", undefined), { updates } = schedule;
  const policy = UPDATE_POLICIES[updates], injectionLimit = policy.inFlight(schedule);
  const ahead = policy.ahead(schedule), eager = eagerStages(schedule, sync);
  return { workers, isolate: "local", injectionLimit, ahead, eagerStages: eager, updates };
}

/** A strategy under which one actor handles messages only when no other actor can. */
const starving = (id: string): Strategy => ({
  name: `starving ${id}`,
  begin: () => true,
  choose: (candidates) => Math.max(0, candidates.findIndex(({ actor }) => actor !== id)),
});

/** Returns the largest mailbox size of each worker over all these orders. */
async function deepest(
  plan: SimulatedTrainingOptions,
  strategies: readonly Strategy[],
): Promise<number[]> {
  const most = initOf(plan).workers.map(() => 0);
  for (const [seed, strategy] of strategies.entries()) {
    const run = await simulate({ seed, strategy, configuration: plan }, async (world) => {
      world.invariant("depth", ({ waiting }) => {
        for (const w of most.keys()) most[w] = Math.max(most[w]!, waiting(`worker-${w}`));
      });
      return await simulatedTraining(world);
    });
    assert.equal(run.failure, undefined, `${strategy.name}, seed ${seed}: ${run.failure?.message}`);
  }
  return most;
}

/** Without flushes many steps run at the same time; the smaller they are, the more. */
const MANY_STEPS: Readonly<Record<string, SimulatedTrainingOptions>> = {
  "pipedream": { schedule: "pipedream", microBatches: 1, steps: 12, pauseEvery: 12 },
  "pipedream-2bw": { schedule: "pipedream-2bw", microBatches: 4, steps: 4, pauseEvery: 4 },
};

Deno.test("no order of messages of any schedule fills a mailbox beyond its bound", async () => {
  for (const schedule of scheduleNames()) {
    const flushed = { schedule, steps: 1, pauseEvery: 1 }, unflushed = MANY_STEPS[schedule];
    const plans = unflushed ? [unflushed] : [flushed, { ...flushed, sync: "eager" as const }];
    for (const plan of plans) {
      const init = initOf(plan), bounds = init.workers.map((worker) => mailboxBound(worker, init));
      const starved = init.workers.map((_, w) => starving(`worker-${w}`));
      const few = plan === plans[0] ? [starved[0]!, starved.at(-1)!] : [];
      const most = await deepest(plan, [random(), ...atDepth(few, [pos(), ...starved])]);
      const what = `${JSON.stringify(plan)}: ${most} of ${bounds}`;
      assert.ok(most.every((depth, w) => depth <= bounds[w]!), what);
      // The bound is not far off: mailboxes fill to at least half of it.
      if (plan === plans[0]) assert.ok(Math.max(...most) >= Math.max(...bounds) / 2, what);
    }
  }
});

Deno.test("the supervisor gives each worker a mailbox of its bound, and no more", () => {
  for (const schedule of ["chimera", "pipedream"]) {
    const init = initOf({ schedule }), capacities: (number | undefined)[] = [];
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

Deno.test("an evaluation answers in the order of its micro-batches, of which no more than the limit are in flight", () => {
  const inFlight: number[] = [], answers: unknown[] = [];
  const inject = (microBatch: number) => void inFlight.push(microBatch);
  const evaluation = new Evaluation(Array(5).fill({}), 3, inject, (losses) => answers.push(losses));
  for (let done = 0; done < 5; done++) {
    assert.deepEqual([inFlight.length, answers], [Math.min(5 - done, 3), []]);
    // The newest micro-batch in flight comes first.
    const next = inFlight.pop()!;
    evaluation.add(next, Float32Array.of(next));
  }
  assert.deepEqual(answers, [[0, 1, 2, 3, 4].map((m) => Float32Array.of(m))]);
});

Deno.test("an evaluation in the pipeline has no more micro-batches in flight than a step", async () => {
  const plan = { schedule: "message-driven", workers: 2, replicas: 1 } as const;
  const { options, requests: [request] } = prepareSimulation(plan), { microBatches } = request!;
  assert.ok(microBatches.length > options.schedule.injectionLimit + 1);
  let inFlight = 0, most = 0;
  const run = await simulate({ strategy: starving("supervisor") }, async (world) => {
    const engine = await openPipeline({ ...options, system: world.system }, "local");
    world.invariant("in flight", ({ actor, type }) => {
      if (actor === "worker-0" && type === "Inject") most = Math.max(most, ++inFlight);
      if (actor === "supervisor" && type === "Loss") inFlight--;
    });
    assert.equal((await engine.evaluate(microBatches)).length, microBatches.length);
  });
  assert.equal(run.failure, undefined);
  assert.equal(most, options.schedule.injectionLimit);
});

const TWO = { workers: 2, microBatches: 4 };

/** Its policy alone would let four enter. */
const ONE_IN_FLIGHT = { order: "bf", activationLimit: 4, pipelineLimit: 1 } as const;

/** Returns the messages of a step to workers, such as `Reduce worker-0` from there, and to the supervisor. */
async function messagesOfStep(plan: SimulatedTrainingOptions) {
  const { options, requests: [request] } = prepareSimulation({ ...TWO, ...plan });
  const toWorkers: string[] = [], toSupervisor: string[] = [];
  let inFlight = 0, mostInFlight = 0;
  const onStep = ({ actor, from, type }: { actor: string; from: string; type: string }) => {
    if (actor === "worker-1" && type === "Activation") {
      mostInFlight = Math.max(mostInFlight, ++inFlight);
    }
    if (actor === "worker-0" && type === "Gradient") inFlight--;
    if (actor.startsWith("worker-")) toWorkers.push(`${type} ${from.split("#")[0]}`);
    if (actor === "supervisor") toSupervisor.push(type);
  };
  const run = await simulate({ onStep }, async (world) => {
    const engine = await openPipeline({ ...options, system: world.system }, "local");
    await Promise.all([engine.step(request!), engine.drain()]);
  });
  assert.equal(run.failure, undefined);
  return { toWorkers, toSupervisor, mostInFlight };
}

Deno.test("stages with one copy reduce without an order, credits come only where the supervisor waits for them, and losses with the next message", async () => {
  const plans: readonly (readonly [SimulatedTrainingOptions, ...(number | undefined)[]])[] = [
    [{ schedule: "1f1b", replicas: 1 }, 2, 0, 0, 1],
    [{ schedule: "interleaved", replicas: 1 }, 2, 0, 0, 2],
    [{ schedule: "1f1b", replicas: 2 }, 0, 4, 0, undefined],
    [{ schedule: "message-driven", replicas: 1 }, 2, 0, 0, 1],
    [{ schedule: "message-driven", replicas: 1, options: ONE_IN_FLIGHT }, 2, 0, 2, undefined],
    [{ schedule: "pipedream", replicas: 1 }, 0, 0, 4, undefined],
  ];
  for (const [plan, alone, ordered, credits, votes] of plans) {
    const { toWorkers, toSupervisor, mostInFlight } = await messagesOfStep(plan);
    const what = JSON.stringify(plan);
    const reduces = toWorkers.filter((one) => one.startsWith("Reduce "));
    const orders = reduces.filter((one) => one === "Reduce supervisor").length;
    const come = toSupervisor.filter((type) => type === "Credit").length;
    assert.deepEqual([reduces.length - orders, orders, come], [alone, ordered, credits], what);
    if (plan.options) assert.equal(mostInFlight, plan.options.pipelineLimit, what);
    if (votes === undefined) continue;
    const first = toSupervisor.indexOf("Loss"), last = toSupervisor.indexOf("Reduced", first);
    const losses = Array<string>(TWO.microBatches).fill("Loss");
    const together = [...losses, ...Array<string>(votes).fill("GradientsReady")];
    assert.deepEqual(toSupervisor.slice(first, last), together, what);
  }
});

/** Observes the fields of each micro-batch that comes to an actor. */
const FIELDS = `data:text/javascript,export const observe = (_, seen) => ({
  begins: ({ ref }, { message: { type, fields } }) =>
    fields && globalThis[seen].add([type, ref.id, ...Object.keys(fields)].join(" ")),
  did() {},
  ends() {},
  closes() {},
});`;

Deno.test("an activation brings only the fields that this stage and later ones read", async () => {
  const seen = new Set<string>(), observer = { module: FIELDS, export: "observe", init: "seen" };
  Object.assign(globalThis, { seen });
  await using system = createSystem({ observer });
  const model = mlp({ inputs: 2, hidden: 2, layers: 2, classes: 2 }, 1);
  const batch = {
    features: Float32Array.of(1, 2),
    labels: Int32Array.of(1),
    other: Int32Array.of(1),
  };
  const run = train({
    ...{ model, system, data: [batch].values(), evaluation: { batches: [batch], every: 1 } },
    ...{ workers: 3, microBatches: 1, steps: 1, runtime: "local", device: "native" } as const,
  });
  for await (const _ of run);
  assert.deepEqual([...seen], [
    "Inject worker-0 features labels other",
    "Activation worker-1 labels",
    "Activation worker-2 labels",
  ]);
});

Deno.test("a worker reduces without an order only if no other worker takes part", () => {
  const copy = { stage: 0, rank: 0, replica: 0, pipe: 0, worker: 0 };
  const alone = { copies: [[copy]], ties: [[]], buddies: undefined };
  const tie = { name: "w", stage: 0, place: 0, members: [] };
  assert.ok(reducesAlone(alone));
  for (const more of [{ copies: [[copy, copy]] }, { ties: [[], [tie]] }, { buddies: [1] }]) {
    assert.ok(!reducesAlone({ ...alone, ...more }), JSON.stringify(more));
  }
});

/** The policy of a worker after its data has been sent. */
const sent = (schedule: Schedule, worker: number) =>
  restorePolicy(structuredClone(policyData(schedule, TWO, worker)));

Deno.test("in another isolate a list is followed as its schedule says, within its limit, and a policy without lists is made again", () => {
  const next = (schedule: Schedule, ready: Action) => {
    const policy = sent(schedule, 1);
    policy.next([F(1, 0)]);
    return policy.next([ready]);
  };
  const gpipe = createSchedule("gpipe", TWO), elastic = withPolicy(gpipe, "elastic");
  for (const one of [gpipe, withPolicy(gpipe, "list")]) assert.equal(next(one, B(1, 0)), undefined);
  assert.deepEqual(next(elastic, B(1, 0)), B(1, 0));
  const limited = (limit?: number) => withPolicy(createSchedule("1f1b", TWO), "elastic", limit);
  assert.equal(next(limited(), F(1, 1)), undefined);
  assert.deepEqual(next(limited(2), F(1, 1)), F(1, 1));
  const driven = sent(createSchedule("message-driven", TWO), 1);
  assert.deepEqual(driven.next([F(1, 1), F(1, 0)]), F(1, 0));
});

Deno.test("no slice overtakes an earlier one of its sequence, however a list is followed", () => {
  const schedule = createSchedule("seq1f1b", { ...TWO, slices: 2 });
  for (const name of ["list", "elastic"] as const) {
    const policy = sent(withPolicy(schedule, name), 1);
    const [first, second] = [0, 1].map((slice) => sliced(F(1, 0), slice, 2)) as [Action, Action];
    assert.equal(policy.next([second]), undefined);
    assert.deepEqual(policy.next([second, first]), first);
    assert.deepEqual(policy.next([second]), second);
  }
});

Deno.test("losses of slices come in their order, one after the other, and none may be missing", () => {
  const losses: Float32Array[] = [], request = { step: 5, microBatches: [{}, {}] };
  const step = { round: 3, losses, request };
  const { Loss } = flowHandlers({ state: "stepping", steps: [step] } as never);
  const come = (microBatch: number, slice: number | undefined, ...losses: number[]) =>
    Loss!({
      ...{ type: "Loss", round: 3, microBatch, losses: Float32Array.from(losses) },
      ...slice !== undefined && { part: { index: slice, count: 2 } },
    });
  assert.throws(() => come(0, 1, 2));
  come(1, undefined, 7);
  assert.throws(() => allLosses(step as never), /step 5: the loss of micro-batch 0 must have come/);
  come(0, 0, 1);
  come(0, 1, 2);
  assert.deepEqual(allLosses(step as never), [Float32Array.of(1, 2), Float32Array.of(7)]);
});

Deno.test("parts of workers are given in the order of the workers, whatever the order in which they come", () => {
  const given: string[][] = [], take = gather<string>([0, 2, 5], (parts) => void given.push(parts));
  for (const worker of [5, 0]) take(worker, `of ${worker}`);
  assert.deepEqual(given, []);
  take(2, "of 2");
  assert.deepEqual(given, [["of 0", "of 2", "of 5"]]);
});

Deno.test("copies of a stage are ordered replica by replica, and within one pipe by pipe", () => {
  const [copies] = copiesOf(createSchedule("chimera", { workers: 4, microBatches: 4 }), 2);
  const places = copies!.map(({ rank, replica, pipe, worker }) => [rank, replica, pipe, worker]);
  assert.deepEqual(places, [[0, 0, 0, 0], [1, 0, 1, 3], [2, 1, 0, 4], [3, 1, 1, 7]]);
});

Deno.test("messages on a link take their time one after the other, and none overtakes", () => {
  const sent: number[] = [], jitters = [1, 0, 0, 0];
  const ctx = {
    self: { id: "me" },
    now: () => 100,
    random: () => jitters.shift(),
    send: (_to: unknown, { arrivesAt }: { arrivesAt: number }) => void sent.push(arrivesAt),
  };
  const options = { latencyUs: 2000, gigabytesPerSecond: 1e-3, jitterUs: 9000 };
  const link = new EmulatedLink<Message>(ctx as never, options);
  // A thousand bytes take a millisecond.
  for (const bytes of [1000, 0, 8000, 3000]) {
    const transfer = [new ArrayBuffer(bytes)];
    link.send({ id: "other" } as ActorRef<Message>, { type: "Any" }, { transfer });
  }
  assert.deepEqual(sent, [112, 112, 112, 114]);
});

Deno.test("without flushes updates are counted by micro-batch or by step, and enough steps start to fill the pipe", () => {
  const schedule = createSchedule("pipedream", { workers: 4, microBatches: 2 });
  const request = { update: 3, learningRate: 0.1, microBatches: [{}, {}] } as never;
  const doubled = UPDATE_POLICIES["double-buffered"];
  const one = UPDATE_POLICIES["every-backward"].localUpdates(request, schedule, 2);
  assert.deepEqual(one, { every: 1, first: 5, learningRate: 0.1 });
  for (const [before, version] of [[0, 0], [1, 0], [2, 1], [3, 2]] as const) {
    const updates = doubled.localUpdates(request, schedule, before);
    assert.deepEqual(updates, { every: 2, first: 3, learningRate: 0.1, version });
  }
  assert.deepEqual([doubled.inFlight(schedule), doubled.ahead(schedule)], [4, 1]);
  assert.equal(doubled.stepsAhead(schedule), 3);
});
