/**
 * The pipeline: a supervisor and its workers, in one isolate or each worker in a Deno worker.
 *
 * [Note: one handler] `system.failed` lives as long as the system. A promise that is raced against it
 * stays reachable from it, and so does its value: a copy of all weights for each `Save`. So it gets
 * one handler, which knows only those who still wait.
 *
 * [Note: looks, not moments] A stall is a row of looks at which nobody was at work. A machine that
 * was suspended, or whose clock has jumped, has missed some looks and seen none, so it does not
 * take the time in between for a stall.
 *
 * @module
 */

import type { StageState, StateOf } from "../../kernels/internal.ts";
import {
  type HeldState,
  heldValues,
  readState,
  type TensorSource,
} from "../checkpoints/tensors.ts";
import { eagerStages } from "../gradients/sync.ts";
import { copiesOf } from "../pipeline/layout.ts";
import type { Answer, Stalled, SupervisorMessage, WriteOutcome } from "../pipeline/protocol.ts";
import { openStepPlanner, type StepOutcome, UPDATE_POLICIES } from "../pipeline/step.ts";
import { SUPERVISOR } from "../pipeline/supervisor.ts";
import type { SupervisorInit } from "../pipeline/supervisor_state.ts";
import type { WorkerFault } from "../pipeline/worker_state.ts";
import { CompactingMap } from "../runtime/actor.ts";
import {
  type ActorRef,
  type ActorSpec,
  type Message,
  type PlaceName,
  type System,
} from "../runtime/mod.ts";
import { createSystem } from "../transports/system.ts";
import {
  type Engine,
  type EngineOptions,
  heldByStages,
  shardOrders,
  stateShapes,
  transportTo,
  withoutAliases,
  workerInits,
  writtenShards,
} from "./engine.ts";
import { rankTransport } from "./mpi_run.ts";

import {
  openRecovering,
  openSnapshots,
  type RecoveringEngine,
  type RecoveryOptions,
  WorkerLostError,
} from "./recovery.ts";
import { openSerialOf } from "./serial.ts";
import type { PreparedRun } from "./prepared_run.ts";

/** Who waits for an answer from the actors of a system, and what it has failed of. */
interface Waiting {
  readonly rejects: CompactingMap<(error: unknown) => void, true>;
  failure?: { readonly error: unknown };
}

const waitingIn = new WeakMap<System, Waiting>();

function waitingOf(system: System): Waiting {
  const known = waitingIn.get(system);
  if (known) return known;
  const waiting: Waiting = { rejects: new CompactingMap() };
  waitingIn.set(system, waiting);
  system.failed.catch((error) => {
    waiting.failure = { error };
    for (const [reject] of waiting.rejects) reject(error);
  });
  return waiting;
}

/**
 * Asks an actor and waits for as long as it takes.
 *
 * @throws {ActorFailedError} (as a rejection) when the actor is gone, or the system has failed.
 */
export async function askUnlessFailed<T extends Message, R>(
  system: System,
  to: ActorRef<T>,
  message: NoInfer<T>,
): Promise<R> {
  const waiting = waitingOf(system);
  const asked = system.ask<Message, R>(to as ActorRef<Message>, message, { timeoutMs: Infinity });
  const { promise, resolve, reject } = Promise.withResolvers<R>();
  waiting.rejects.set(reject, true);
  asked.then(resolve, reject);
  if (waiting.failure) reject(waiting.failure.error);
  try {
    return await promise;
  } finally {
    waiting.rejects.take(reject);
  }
}

/** Looks in the time after which a run counts as stalled. */
const LOOKS = 8;

/** Who looks. */
interface StallWatch {
  /** From now on somebody waits, and nobody may be at rest for longer than `limitMs`. */
  begin(limitMs: number): void;
  /** Nobody waits any longer. */
  end(): void;
  /** Nobody will look any more. */
  close(): void;
}

/**
 * Opens a watch. In virtual time nobody looks: whoever simulates sees when nobody can do anything.
 *
 * @param stallMs a usual limit; an eighth of it is the time between looks.
 * @param onStall called once for each wait that lasts, with its limit.
 */
export function openStallWatch(
  { activity }: Pick<System, "activity">,
  stallMs: number,
  onStall: (limitMs: number) => void,
): StallWatch {
  if (!activity) return { begin() {}, end() {}, close() {} };
  const lookMs = stallMs / LOOKS;
  let limit = Infinity, seen: number | undefined, quiet = 0;
  // One timer for the whole run: steps are many, and a timer for each would be set and cleared.
  const timer = setInterval(() => {
    if (limit === Infinity) return;
    const now = activity();
    quiet = now === seen ? quiet + 1 : 0;
    seen = now;
    if (quiet * lookMs < limit) return;
    const stalledMs = limit;
    limit = Infinity;
    onStall(stalledMs);
  }, lookMs);
  return {
    begin(limitMs) {
      limit = limitMs;
      // The first look may come at once; it only sees how things stand.
      seen = undefined;
    },
    end() {
      limit = Infinity;
    },
    close: () => clearInterval(timer),
  };
}

/** A worker whose process or thread shows no sign of life for so long has not begun to live. */
const START_MS = 30_000;

/** A worker that is to stop has nothing to finish, and one that is given up has nothing to lose. */
const STOP_GRACE_MS = 1000;

/** A supervisor whose workers are ready. */
interface Supervised<M extends Message> {
  /**
   * Gets the answer to a message.
   *
   * @throws {WorkerLostError} when a worker is gone or does not move.
   */
  ask<T>(message: M): Promise<T>;
  /** Ends all of them. */
  close(): Promise<void>;
}

/**
 * Starts a supervisor and its workers, in the system of the run or else in one of their own.
 *
 * @param ahead how many steps must have begun, where more than one may, for the oldest to end.
 * @throws {WorkerLostError} when a worker is gone or does not move.
 */
async function startSupervisor<Init, M extends Message>(
  { seed, observer, stallMs, transport, system: given }: EngineOptions,
  spec: ActorSpec<Init, M>,
  init: NoInfer<Init>,
  ahead = 1,
): Promise<Supervised<M>> {
  const system = given ??
    createSystem({
      seed,
      stopGraceMs: STOP_GRACE_MS,
      ...observer && { observer },
      ...transport && { transport },
    });
  const supervisor = system.spawn<Init, M>(spec, init, {
    id: "supervisor",
    isolate: "local",
  });
  const watch = openStallWatch(system, stallMs, (forMs) => {
    const stalled: Stalled = { type: "Stalled", forMs };
    system.send(supervisor as ActorRef<Message>, stalled, { lane: "control" });
  });
  const ask = watchedAsk<M>(system, supervisor, watch, stallMs, ahead);
  const close = () => {
    watch.close();
    // A system that was given outlives the pipeline.
    return given ? system.stop(supervisor) : system.stop();
  };
  try {
    await ask({ type: "Start" } as Message as M);
  } catch (error) {
    await close();
    throw error;
  }
  return { ask, close };
}

function watchedAsk<M extends Message>(
  system: System,
  supervisor: ActorRef<M>,
  watch: StallWatch,
  stallMs: number,
  ahead: number,
): Supervised<M>["ask"] {
  /** How many steps are waited for that must end; other questions count as enough of them. */
  let waiting = 0;
  const count = (more: number, limitMs: number) => {
    const wasWatched = waiting >= ahead;
    waiting += more;
    const isWatched = waiting >= ahead;
    if (isWatched === wasWatched) return;
    if (isWatched) watch.begin(limitMs);
    else watch.end();
  };
  return async <T>(message: M) => {
    const weight = message.type === "RunStep" ? 1 : ahead;
    count(weight, message.type === "Start" ? Math.max(stallMs, START_MS) : stallMs);
    try {
      const answer = await askUnlessFailed<M, Answer<T>>(system, supervisor, message);
      if ("lost" in answer) throw new WorkerLostError(answer.lost);
      return answer.value;
    } finally {
      count(-weight, stallMs);
    }
  };
}

/**
 * Starts the pipeline.
 *
 * @param isolate where the workers run.
 * @param fault what one of them is asked to suffer.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 */
export async function openPipeline(
  options: EngineOptions,
  isolate: PlaceName,
  fault?: WorkerFault,
): Promise<Engine> {
  const { schedule, sync, clip, heapLimitMb, model, supervisor = SUPERVISOR, worker } = options;
  const policy = UPDATE_POLICIES[schedule.updates], ahead = policy.stepsAhead(schedule);
  const init: SupervisorInit = {
    workers: workerInits(options, isolate, fault),
    heapLimitMb: transportTo(isolate, options)?.limitsMemory ? heapLimitMb : undefined,
    isolate,
    injectionLimit: policy.inFlight(schedule),
    eagerStages: eagerStages(schedule, sync),
    updates: schedule.updates,
    clip,
    ...worker && { worker },
  };
  const { ask, close } = await startSupervisor<SupervisorInit, SupervisorMessage>(
    options,
    supervisor,
    init,
    Math.max(1, ahead),
  );
  const planner = openStepPlanner(options);
  // Journals, and systems of others, are told of a state by one message of each worker.
  const isTold = options.observer !== undefined || options.system !== undefined;
  const engine: Engine = {
    step: (request) => ask<StepOutcome>({ type: "RunStep", request, plan: planner.next(request) }),
    evaluate: (microBatches) => ask<Float32Array[]>({ type: "Evaluate", microBatches }),
    save: async () => withoutAliases(await ask<StageState>({ type: "Save" }), model.ties),
    ...!isTold && {
      held: heldByStages(
        options,
        (stage, parts) => ask<Float32Array>({ type: "Fetch", stage, parts }),
      ),
    },
    ...options.isSharded && {
      async write(folder, step) {
        const orders = shardOrders(options, folder);
        return writtenShards(await ask<WriteOutcome[]>({ type: "Write", orders, step }));
      },
    },
    close,
  };
  if (policy.isFlushed) return engine;
  const drain = async () => {
    planner.drained();
    await ask({ type: "Drain" });
  };
  return { ...engine, ahead, drain };
}

/**
 * Opens the engine of a run.
 *
 * @param onLost told of each worker that is lost where the run goes on.
 */
export async function openEngine(
  prepared: PreparedRun,
  onLost?: RecoveryOptions["onLost"],
): Promise<RecoveringEngine> {
  const { mpi } = prepared;
  if (!mpi) return await openOn(prepared, onLost);
  const transport = await rankTransport(mpi, mpi.ranks, columnsOf(prepared, mpi.ranks));
  return await openOn({ ...prepared, isolation: transport.name, transport }, onLost);
}

/** For each stage the rank of each copy, where MPI adds their gradients. */
function columnsOf(
  { reduce, schedule, replicas }: PreparedRun,
  ranks: readonly number[],
): number[][] {
  const copies = copiesOf(schedule, replicas);
  if (reduce !== "mpi" || copies[0]!.length === 1) return [];
  return copies.map((column) => column.map(({ worker }) => ranks[worker]!));
}

async function openOn(
  prepared: PreparedRun,
  onLost: RecoveryOptions["onLost"],
): Promise<RecoveringEngine> {
  const { runtime, isolation } = prepared;
  const isolate = runtime === "local" ? "local" : isolation;
  const { model: { parameters }, snapshots, checkpoint } = prepared;
  const shapes = stateShapes(parameters, prepared);
  if (runtime === "serial") return withReads(await openSerialOf(prepared), shapes);
  const canKill = transportTo(isolate, prepared)?.canKill ?? false;
  let opened = 0;
  const open = async (state: StateOf<TensorSource>) => {
    const nth = opened++, fault = prepared.faults[nth];
    const run = { ...await journaled(prepared, nth), state: readable(isolate, state) };
    return await openPipeline(run, isolate, fault);
  };
  const taken = openSnapshots(snapshots, checkpoint?.directory, shapes);
  const options = { ...prepared, canKill, shapes, snapshots: taken, onLost };
  return await openRecovering(open, options);
}

/** A state that workers can read by themselves: nobody can be permitted to read a path with a comma. */
function readable(isolate: PlaceName, state: StateOf<TensorSource>): StateOf<TensorSource> {
  const sources = [...state.weights.values(), ...state.moments.values()];
  const isRefused = (source: TensorSource) => "path" in source && source.path.includes(",");
  return isolate !== "local" && sources.some(isRefused) ? readState(state) : state;
}

/** A serial engine: nobody dies whom it would outlive. */
function withReads(engine: Engine, { model }: HeldState["shapes"]): RecoveringEngine {
  const state = async () => engine.held ?? heldValues(await engine.save(), model);
  return { ...engine, read: async (use) => await use(await state(), () => {}) };
}

/** A run with the journal of the `nth` time that its workers start. */
async function journaled(prepared: PreparedRun, nth: number): Promise<PreparedRun> {
  // Whoever made the system has a journal of it, or none.
  if (prepared.system) return prepared;
  return { ...prepared, observer: await prepared.journal?.begin(prepared, nth) };
}
