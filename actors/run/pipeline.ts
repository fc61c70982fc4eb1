/**
 * The pipeline engine: a supervisor and its workers, in one isolate or each worker in its own place.
 *
 * [Note: one handler] `system.failed` lives as long as the system. A promise that is raced against it
 * stays reachable from it, and so does its value: a copy of all weights for each `Save`. So it gets
 * one handler, which references only pending calls.
 *
 * [Note: looks, not moments] A stall is a number of successive looks without activity. A machine that
 * was suspended, or whose clock has jumped, has missed some looks and seen none, so that time does not
 * count as a stall.
 *
 * [Note: the wrong copy] Steps are deterministic: a worker that computes correctly has the same
 * digests whenever a step is taken. So among the digests of a stage in all tries of a step, the most
 * frequent one is right, even if there are only two copies.
 *
 * @module
 */

import type { StateOf } from "../../kernels/mod.ts";
import type { StageState } from "../../kernels/internal.ts";
import { type HeldState, readState, type TensorSource } from "../checkpoints/tensors.ts";
import { type CopyDigest, unequalCopies } from "../gradients/commit.ts";
import { eagerStages } from "../gradients/sync.ts";
import { copiesOf, type StageCopy } from "../pipeline/layout.ts";
import type { Answer, Stalled, SupervisorMessage, WriteOutcome } from "../pipeline/protocol.ts";
import {
  type StepOutcome,
  StepPlanner,
  type StepRequest,
  UPDATE_POLICIES,
} from "../pipeline/step.ts";
import { SUPERVISOR } from "../pipeline/supervisor.ts";
import type { SupervisorInit } from "../pipeline/supervisor_state.ts";
import type { WorkerFault } from "../pipeline/worker_state.ts";
import { CompactingMap } from "../runtime/actor.ts";
import type { ActorRef, Message, PlaceName, System } from "../runtime/mod.ts";
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
import type { PreparedRun } from "./events.ts";
import { Homes } from "./homes.ts";
import { type HostsOptions, MovingHosts, outlivesMoves } from "./hosts.ts";
import { openSnapshots, Recovery, type RecoveryOptions, WorkerLostError } from "./recovery.ts";
import { openSerial } from "./serial.ts";

/** Calls that wait for an actor of a system, and the failure of the system. */
interface Waiting {
  readonly rejects: CompactingMap<(error: unknown) => void, true>;
  failure?: { readonly error: unknown };
}

const waitingIn = new WeakMap<System, Waiting>();

const waitingOf = (system: System): Waiting =>
  waitingIn.getOrInsertComputed(system, () => {
    const waiting: Waiting = { rejects: new CompactingMap() };
    system.failed.catch((error) => {
      waiting.failure = { error };
      for (const [reject] of waiting.rejects) reject(error);
    });
    return waiting;
  });

/**
 * Asks an actor, without a time limit.
 *
 * @throws {ActorFailedError} (as a rejection) when the actor is gone, or the system has failed.
 */
export async function askOrFail<T extends Message, R>(
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

/** Looks within the limit of a stall. */
const LOOKS = 8;

/** Reports a stall of the actors of a system. In virtual time the simulation reports it instead. */
export class StallWatch {
  #limitMs = Infinity;
  #seen: number | undefined;
  #quiet = 0;
  readonly #timer: ReturnType<typeof setInterval> | undefined;

  /**
   * Starts watching.
   *
   * @param stallMs the usual limit; an eighth of it is the time between looks.
   * @param onStall called once for each wait that exceeds its limit.
   */
  constructor(
    { activity }: Pick<System, "activity">,
    stallMs: number,
    onStall: (limitMs: number) => void,
  ) {
    if (!activity) return;
    const lookMs = stallMs / LOOKS;
    // One timer for the whole run: setting and clearing one for each step would cost time.
    this.#timer = setInterval(() => {
      if (this.#limitMs === Infinity) return;
      const now = activity();
      this.#quiet = now === this.#seen ? this.#quiet + 1 : 0;
      this.#seen = now;
      if (this.#quiet * lookMs < this.#limitMs) return;
      const stalledMs = this.#limitMs;
      this.#limitMs = Infinity;
      onStall(stalledMs);
    }, lookMs);
  }

  /** Begins a wait: from now on, no activity for `limitMs` is a stall; Infinity ends it. */
  begin(limitMs: number): void {
    this.#limitMs = limitMs;
    // The first look can follow immediately: it only reads the counter.
    this.#seen = undefined;
  }

  /** Stops watching. */
  close(): void {
    clearInterval(this.#timer);
  }
}

/** Milliseconds within which a worker must start. */
const START_MS = 30_000;

/** Milliseconds before a stopped worker is killed; it has nothing to finish. */
const STOP_GRACE_MS = 1000;

const newSystem = ({ seed, observer, transport }: EngineOptions) =>
  createSystem({
    ...{ seed, stopGraceMs: STOP_GRACE_MS },
    ...observer && { observer },
    ...transport && { transport },
  });

const heapLimitOf = (options: EngineOptions, isolate: PlaceName) =>
  transportTo(isolate, options)?.limitsMemory ? options.heapLimitMb : undefined;

/** Returns whether the state of workers can be read in pieces; journals do not record such reads. */
const isReadable = ({ journal, system, freezes }: EngineOptions) =>
  !journal && (!system || freezes === true);

/** A supervisor with its workers. */
class PipelineEngine implements Engine {
  readonly ahead: number;
  /** Undefined with a journal or a given system: then each worker sends its state in one message. */
  readonly held: HeldState | undefined;
  readonly #planner: StepPlanner;
  readonly #system: System;
  readonly #supervisor: ActorRef<SupervisorMessage>;
  readonly #watch: StallWatch;
  readonly #verifier: Verifier | undefined;
  /** True if no step has been taken since all copies were compared. */
  #isCompared = true;
  /** Number of pending steps; any other pending question counts as `ahead` steps. */
  #waiting = 0;

  constructor(
    private readonly options: EngineOptions,
    init: SupervisorInit,
    private readonly homes: Homes | undefined,
  ) {
    const { schedule, stallMs } = options;
    this.ahead = UPDATE_POLICIES[schedule.updates].stepsAhead(schedule);
    this.#planner = new StepPlanner(options);
    this.#verifier = options.verification && new Verifier(
      copiesOf(schedule, options.replicas),
      (worker, why) => this.#exclude(worker, why),
      options.onDoubt,
    );
    if (isReadable(options)) {
      this.held = heldByStages(
        options,
        (stage, parts) => this.#ask<Float32Array<ArrayBuffer>>({ type: "Fetch", stage, parts }),
      );
    }
    const system = options.system ?? homes?.system ?? newSystem(options);
    const place = { id: "supervisor", isolate: "local" };
    const supervisor = system.spawn(options.supervisor ?? SUPERVISOR, init, place);
    this.#watch = new StallWatch(system, stallMs, (forMs) => {
      const stalled: Stalled = { type: "Stalled", forMs };
      system.send(supervisor as ActorRef<Message>, stalled, { lane: "control" });
    });
    this.#system = system;
    this.#supervisor = supervisor;
  }

  /** Waits until all workers are ready. */
  async start(): Promise<void> {
    try {
      await this.#ask({ type: "Start" });
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  async step(request: StepRequest): Promise<StepOutcome> {
    const take = () =>
      this.#ask<StepOutcome>({ type: "RunStep", request, plan: this.#planner.next(request) });
    if (!this.#verifier) return await take();
    this.#isCompared = false; // also if a worker is lost after the commit
    const outcome = await this.#verifier.step(request.step, take);
    if (request.update % COMPARE_EVERY === 0) {
      await this.compare().catch((error) => {
        const remains = error instanceof WorkerLostError && error.lost.remains;
        // The survivors have ended the step, so it must not be taken again.
        throw remains
          ? new WorkerLostError({ ...error.lost, remains: { ...remains, committed: outcome } })
          : error;
      });
    }
    return outcome;
  }

  async compare(): Promise<void> {
    const copies = copiesOf(this.options.schedule, this.options.replicas);
    if (this.#isCompared || copies[0]!.length === 1) return;
    const wrong = unequalCopies(await this.#ask<CopyDigest[]>({ type: "Compare" }));
    this.#isCompared = true;
    if (wrong.length === 0) return;
    const workers = wrong.map(({ stage, rank }) => `worker-${copies[stage]![rank]!.worker}`);
    const must = `weights and moments of stage ${wrong[0]!.stage} must be equal in all copies`;
    const received = `others on ${[...new Set(workers)].join(" and ")}`;
    const message = `Cannot trust the state: ${must}, received ${received}`;
    throw new WorkerLostError({ worker: workers[0]!, kind: "exit", message, isWedged: false });
  }

  async #exclude(worker: number, why: string): Promise<void> {
    const { schedule, replicas, freezes } = this.options;
    const isNeeded = copiesOf(schedule, replicas).some((copies) =>
      copies.every((copy) => copy.worker === worker)
    );
    if (!freezes || isNeeded) {
      throw new Error(`Cannot continue: the run must be able to move to other workers; ${why}`);
    }
    const excluded = this.#ask({ type: "Exclude", worker, why });
    // It rejects when the isolate has ended, before it is awaited.
    excluded.catch(() => {});
    await this.homes?.end(worker);
    await excluded;
  }

  async drain(): Promise<void> {
    if (this.ahead === 0) return;
    this.#planner.drained();
    await this.#ask({ type: "Drain" });
  }

  evaluate(microBatches: StepRequest["microBatches"]): Promise<Float32Array[]> {
    return this.#ask({ type: "Evaluate", microBatches });
  }

  async save(): Promise<StageState> {
    return withoutAliases(await this.#ask({ type: "Save" }), this.options.model.ties);
  }

  async write(folder: string, step: number) {
    const orders = shardOrders(this.options, folder);
    return writtenShards(await this.#ask<WriteOutcome[]>({ type: "Write", orders, step }));
  }

  async close(isMoving = false): Promise<void> {
    this.#watch.close();
    const homes = this.homes;
    // A given system outlives the pipeline.
    if (this.options.system || homes && isMoving) await this.#system.stop(this.#supervisor);
    else await (homes ? homes.close() : this.#system.stop());
    if (isMoving) await homes?.empty();
  }

  /** @throws {WorkerLostError} when a worker has failed or the pipeline has stalled. */
  async #ask<T>(message: SupervisorMessage): Promise<T> {
    const { stallMs } = this.options, enough = Math.max(1, this.ahead);
    const weight = message.type === "RunStep" ? 1 : enough;
    this.#count(weight, message.type === "Start" ? Math.max(stallMs, START_MS) : stallMs);
    try {
      const answer = await askOrFail<SupervisorMessage, Answer<T>>(
        this.#system,
        this.#supervisor,
        message,
      );
      if ("lost" in answer) throw new WorkerLostError(answer.lost);
      return answer.value;
    } finally {
      this.#count(-weight, stallMs);
    }
  }

  /** Watches for stalls while enough steps have begun that the oldest one must end. */
  #count(more: number, limitMs: number): void {
    const enough = Math.max(1, this.ahead), wasWatched = this.#waiting >= enough;
    this.#waiting += more;
    const isWatched = this.#waiting >= enough;
    if (isWatched === wasWatched) return;
    this.#watch.begin(isWatched ? limitMs : Infinity);
  }
}

/**
 * Starts the pipeline.
 *
 * @param isolate place of the workers.
 * @param fault a failure that one of them simulates.
 * @param homes isolates in which workers start.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 * @throws {WorkerLostError} when a worker has failed or the pipeline has stalled.
 */
export async function openPipeline(
  options: EngineOptions,
  isolate: PlaceName,
  fault?: WorkerFault,
  homes?: Homes,
): Promise<Engine> {
  const { schedule, sync, clip, worker, verification, stallMs } = options;
  const policy = UPDATE_POLICIES[schedule.updates];
  const whole: SupervisorInit = {
    workers: workerInits(options, isolate, fault),
    heapLimitMb: heapLimitOf(options, isolate),
    isolate,
    injectionLimit: policy.inFlight(schedule),
    ahead: policy.ahead(schedule),
    eagerStages: eagerStages(schedule, sync),
    updates: schedule.updates,
    clip,
    freezes: options.freezes && isReadable(options),
    verifies: verification !== undefined,
    ...worker && { worker },
  };
  const init = homes ? await homes.start(whole, Math.max(stallMs, START_MS)) : whole;
  const engine = new PipelineEngine(options, init, homes);
  await engine.start();
  return engine;
}

/**
 * Opens the engine of a run.
 *
 * @param onLost gets each failure after which the run continues.
 */
export async function openEngine(
  run: PreparedRun,
  onLost?: RecoveryOptions["onLost"],
  onResize: HostsOptions["onResize"] = () => {},
): Promise<Recovery> {
  const { mpi } = run;
  const ranks = mpi && await rankTransport(mpi, mpi.ranks, columnsOf(run, mpi.ranks));
  const prepared = ranks ? { ...run, isolation: ranks.name, transport: ranks } : run;
  const { runtime, model: { parameters }, checkpoint, lent, hasSpare } = prepared,
    isSerial = runtime === "serial";
  const isolate = runtime === "local" ? "local" : prepared.isolation;
  const shapes = stateShapes(parameters, prepared);
  let opened = 0;
  const memoryLimitMb = heapLimitOf(prepared, isolate),
    open = () => newSystem({ ...prepared, observer: prepared.box?.observer });
  const homes = outlivesMoves(prepared, isolate)
    ? new Homes({ open, isolate, memoryLimitMb, hasSpare })
    : undefined;
  const openOf = (run: PreparedRun) => async (state: StateOf<TensorSource>) => {
    if (isSerial) return await openSerial(prepared);
    const nth = opened++, fault = prepared.faults[nth];
    await lent?.gather(run.replicas * run.schedule.workers);
    const own = { state: readable(isolate, state), onDoubt: prepared.announce };
    const hosted = { ...await withJournal(run, nth), ...own };
    const engine = await openPipeline(hosted, isolate, fault, homes);
    return lent ? lent.releasing(engine) : engine;
  };
  const { minWorkers } = prepared, available = lent && (() => lent.available());
  const hosts = new MovingHosts(prepared, openOf, {
    ...{ minWorkers, onResize, available },
    // Hosts of other machines may have to join first.
    ...!lent && homes && { prepare: (workers) => homes.prepare(workers) },
  });
  return await Recovery.open((state) => hosts.start(state), {
    ...prepared,
    retries: isSerial ? 0 : prepared.retries,
    canKill: transportTo(isolate, prepared)?.canKill ?? false,
    shapes,
    snapshots: openSnapshots(prepared.snapshots, checkpoint?.directory, shapes),
    onLost,
    ...prepared.freezes && { hosts },
  });
}

/** Returns for each stage the rank of each copy, if MPI adds their gradients. */
function columnsOf(
  { reduce, schedule, replicas }: PreparedRun,
  ranks: readonly number[],
): number[][] {
  const copies = copiesOf(schedule, replicas);
  if (reduce !== "mpi" || copies[0]!.length === 1) return [];
  return copies.map((column) => column.map(({ worker }) => ranks[worker]!));
}

/**
 * Returns a state that workers can read: permissions cannot name a path with a comma, and hosts have
 * none of the leader's files.
 */
function readable(isolate: PlaceName, state: StateOf<TensorSource>): StateOf<TensorSource> {
  const sources = [...state.weights.values(), ...state.moments.values()];
  const isRefused = (source: TensorSource) =>
    "path" in source && (isolate === "nats" || source.path.includes(","));
  return isolate !== "local" && sources.some(isRefused) ? readState(state) : state;
}

/**
 * Returns a run with the journal or black box of the `nth` start of its workers. A given system has
 * its own.
 */
async function withJournal(prepared: PreparedRun, nth: number): Promise<PreparedRun> {
  const { system, journal, box, hosted } = prepared;
  if (system) return prepared;
  box?.begin(hosted !== undefined);
  return { ...prepared, observer: await journal?.begin(prepared, nth) ?? box?.observer };
}

/** Tries of a step. */
const TRIES_MAX = 3;

/** Number of wrong results after which a worker is excluded. */
const WRONG_MAX = 2;

/** Steps between two comparisons of weights and moments. */
const COMPARE_EVERY = 4;

/** Verifies the steps of an engine. */
class Verifier {
  /** Wrong results in earlier steps, by worker. */
  #wrong = new Map<number, number>();

  /**
   * Begins without wrong results.
   *
   * @param copies for each stage, its copies.
   * @param exclude ends a worker, so that the run moves to the others; rejects.
   * @param onDoubt receives a line for each repeated step.
   */
  constructor(
    private readonly copies: readonly (readonly StageCopy[])[],
    private readonly exclude: (worker: number, why: string) => Promise<unknown>,
    private readonly onDoubt: EngineOptions["onDoubt"],
  ) {}

  /**
   * Takes a step until its results are not in doubt.
   *
   * @throws {Error} after three tries.
   */
  async step(step: number, take: () => Promise<StepOutcome>): Promise<StepOutcome> {
    const tries: StepOutcome[] = [], before = this.#wrong;
    for (;;) {
      for (const [worker, count] of this.#wrong) {
        const why = `worker-${worker} is excluded: its results were wrong ${count} times`;
        if (count >= WRONG_MAX) await this.exclude(worker, why);
      }
      const outcome = await take(), doubts = doubtsOf(outcome);
      tries.push(outcome);
      this.#wrong = this.#count(before, tries);
      if (doubts.length === 0) return outcome;
      const what = `step ${step}: ${doubts.join("; ")}`;
      if (tries.length === TRIES_MAX) {
        throw new Error(`Cannot take ${what}, in ${TRIES_MAX} tries`);
      }
      this.onDoubt?.(`${what}; the step is taken again`);
    }
  }

  /** Adds the tries of a step in which each worker was wrong. */
  #count(before: ReadonlyMap<number, number>, tries: readonly StepOutcome[]): Map<number, number> {
    const counts = new Map(before), right = rightDigests(tries);
    for (const { digests = [], doubts = [] } of tries) {
      const wrong = digests.filter(({ stage, digest }) => (right.get(stage) ?? digest) !== digest)
        .map(({ stage, rank }) => this.copies[stage]![rank]!.worker);
      for (const worker of new Set([...wrong, ...doubts.flatMap(({ worker = [] }) => worker)])) {
        counts.set(worker, 1 + (counts.get(worker) ?? 0));
      }
    }
    return counts;
  }
}

/** Describes the errors that were found in a step that was not committed. */
function doubtsOf({ digests = [], doubts = [] }: StepOutcome): string[] {
  const stages = new Set(unequalCopies(digests).map(({ stage }) => stage));
  const unequal = Array.from(stages, (stage) => `the copies of stage ${stage} have unequal sums`);
  return [...new Set([...unequal, ...doubts.map(({ what }) => what)])];
}

/** Returns the most frequent digest of each stage, unless several are. */
function rightDigests(tries: readonly StepOutcome[]) {
  const all = Map.groupBy(tries.flatMap(({ digests = [] }) => digests), ({ stage }) => stage);
  const right = new Map<number, number>();
  for (const [stage, digests] of all) {
    const counts = [...Map.groupBy(digests, ({ digest }) => digest)]
      .map(([digest, { length }]) => [digest, length] as const).sort(([, a], [, b]) => b - a);
    if (counts[0]![1] > (counts[1]?.[1] ?? 0)) right.set(stage, counts[0]![0]);
  }
  return right;
}
