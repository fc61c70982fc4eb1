/**
 * The state of the supervisor, and the injection of micro-batches.
 *
 * [Note: credits] A micro-batch in flight holds activations on every worker, so the number in flight
 * bounds memory (AxoNN, section III-C). The supervisor sends as many Inject as the schedule allows,
 * some more that wait at the first worker until a micro-batch has left, and one for each Credit, for
 * which no worker waits. A send never blocks, so no cycle of full mailboxes can form.
 *
 * @module
 */

import type { Batch, StageMemory, StageProgram } from "../../kernels/mod.ts";
import type { StageState } from "../../kernels/internal.ts";
import type { WeightUpdates } from "../../schedules/mod.ts";
import { areFinite, CommitDecision, type CopyDigest } from "../gradients/commit.ts";
import { CHUNKS_IN_TRANSIT } from "../gradients/sync.ts";
import { CompactingMap } from "../runtime/actor.ts";
import type { ActorRef, ActorSpec, Context, Down, PlaceName, Reply } from "../runtime/mod.ts";
import type { SupervisorMessage, WorkerLost, WorkerMessage, WriteOutcome } from "./protocol.ts";
import {
  type Doubt,
  type StepOutcome,
  type StepPlan,
  type StepRequest,
  type TracedAction,
  UPDATE_POLICIES,
} from "./step.ts";
import type { WorkerInit } from "./worker_state.ts";

/** Limits of messages in flight. */
export interface InFlightOptions {
  /** Micro-batches that may be in flight in each data-parallel replica. */
  readonly injectionLimit: number;
  /** Micro-batches of each replica that may wait at their first worker. */
  readonly ahead: number;
  /** Stages whose all-reduce starts while other stages still run backward. */
  readonly eagerStages: readonly number[];
}

/**
 * Returns the most messages that can wait for a worker, in both lanes.
 *
 * - A micro-batch in flight is one message: an Inject or Activation forward, a Gradient backward, or
 *   its two halves, or one message for each slice of its sequences; the same holds in an evaluation. In
 *   addition, there are the named values that other stages send to the stages of this worker.
 * - For each stage copy of this worker, parts of all-reduces. In any algorithm a rank gets at most
 *   2(p − 1) parts of a chunk: one of each phase from each other rank, or all from its neighbour. A
 *   rank starts a chunk only when the chunk {@linkcode CHUNKS_IN_TRANSIT} places earlier is
 *   complete, and by then this copy has taken all parts of that chunk. The gradients of tied parameters
 *   are added. After a step that was aborted while stages reduced early, the same number may still wait.
 * - Orders of the supervisor: with a flush the Begin of a step, its Reduce for each early stage and
 *   for the rest, and its Commit or Abort; without, a Begin for each micro-batch in flight (a step
 *   begins with its first) and a Drain. Connect and Save are sent only when nothing else is pending.
 * - A Dispatch or StepBucket to itself, a LinkDue, a Report.
 *
 * If no stage reduces early, no part arrives before the last backward of all workers.
 *
 * @example A worker of 1F1B holds at most the micro-batches in flight and a few more messages
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const copies = [[{ stage: 0, rank: 0, replica: 0, pipe: 0, worker: 0 }]];
 * const worker = { held: [{ copy: copies[0]![0]! }], copies, ties: [[]], halves: 1 } as const;
 * const options = { injectionLimit: 4, ahead: 2, eagerStages: [] };
 * assert.equal(mailboxBound({ ...worker, updates: "flush" }, options), 4 + 2 + 1 + 2);
 * assert.equal(mailboxBound({ ...worker, updates: "every-backward" }, options), 6 + 7 + 2);
 * ```
 */
export function mailboxBound(
  { held, mirrors = [], copies, ties, halves, updates, link }: BoundedWorker,
  { injectionLimit, ahead, eagerStages }: InFlightOptions,
): number {
  const { isFlushed } = UPDATE_POLICIES[updates], early = eagerStages.length;
  const begins = isFlushed ? 1 : injectionLimit + ahead;
  const more = held.reduce((sum, { program: { skips = [] } = {} }) => sum + 2 * skips.length, 0);
  const runs = held[0]?.program?.slicing?.slices ?? halves;
  const computing = runs * injectionLimit * (1 + more) + ahead + begins;
  const parts = held.reduce((sum, { copy: { stage } }) => {
    const chunkParts = 2 * (copies[stage]!.length - 1);
    const others = ties[stage]!.reduce((count, { members }) => count + members.length - 1, 0);
    return sum + CHUNKS_IN_TRANSIT * chunkParts + others;
  }, mirrors.length);
  const ending = isFlushed ? (early > 0 ? 2 : 1) * parts + early + 2 : 1;
  const own = 2 + (link ? 1 : 0);
  return own + (isFlushed && early === 0 ? Math.max(computing, ending) : computing + ending);
}

/** The parts of a worker that determine its bound. */
type BoundedWorker =
  & Pick<WorkerInit, "mirrors" | "copies" | "ties" | "halves" | "updates" | "link">
  & {
    readonly held: readonly (
      & Pick<WorkerInit["held"][number], "copy">
      & { readonly program?: Pick<StageProgram, "skips" | "slicing"> }
    )[];
  };

/** An evaluation of micro-batches, of which a limited number is in flight. */
export class Evaluation {
  readonly #losses: Float32Array[] = [];
  #injected = 0;
  #missing: number;

  /**
   * @param limit The most micro-batches in flight.
   * @param done Gets the losses by micro-batch.
   */
  constructor(
    private readonly microBatches: readonly Batch[],
    limit: number,
    private readonly inject: (microBatch: number, fields: Batch) => void,
    private readonly done: (losses: Float32Array[]) => void,
  ) {
    this.#missing = microBatches.length;
    for (let i = 0; i < limit; i++) this.#next();
  }

  #next(): void {
    const fields = this.microBatches[this.#injected];
    if (fields) this.inject(this.#injected++, fields);
  }

  /** Takes the losses of a micro-batch, and injects the next. */
  add(microBatch: number, losses: Float32Array): void {
    this.#losses[microBatch] = losses;
    this.#next();
    if (--this.#missing === 0) this.done(this.#losses);
  }
}

/** Takes the answer of a worker. */
type Take<T> = (worker: number, part: T) => void;

/**
 * Gathers the answers of workers.
 *
 * @param workers The workers that answer.
 * @param done Gets the answers in the order of `workers` when all are there.
 */
export function gather<T>(
  workers: readonly number[],
  done: (parts: T[]) => void,
): Take<T> {
  const parts = new Map<number, T>();
  return (worker, part) => {
    // A worker that is lost may have answered an earlier question.
    if (!workers.includes(worker)) return;
    parts.set(worker, part);
    if (parts.size === workers.length) done(workers.map((one) => parts.get(one)!));
  };
}

/** Replies to questions that are not answered yet. */
class PendingReplies {
  readonly #waiting = new CompactingMap<Reply, true>();
  #lost: WorkerLost | undefined;

  constructor(private readonly ctx: Context<SupervisorMessage>) {}

  /** Defers the reply to the current message. @param isAfterLoss True if a loss does not answer it. */
  defer(isAfterLoss = false): Reply {
    const reply = this.ctx.deferReply(), lost = isAfterLoss ? undefined : this.#lost;
    if (lost) reply({ lost });
    else this.#waiting.set(reply, true);
    return (value, options) => {
      if (this.#waiting.take(reply)) reply({ value }, options);
    };
  }

  /** Answers all questions, later ones too, with the loss of a worker. */
  failAll(lost: WorkerLost): void {
    // A committed step is the answer to the question about it only. A later loss counts after a freeze.
    const { remains } = lost, known = remains ? { workers: remains.workers } : undefined;
    if (!this.#lost || this.#lost.remains) this.#lost = { ...lost, remains: known };
    for (const [reply] of this.#waiting) {
      this.#waiting.take(reply);
      reply({ lost });
    }
  }
}

/** Returns the loss of a worker that has ended. @param when The activity at that time: `step 4`. */
export function lossOf(
  { ref, reason }: Down,
  when: string | undefined,
  excluded?: string,
): WorkerLost {
  const during = when === undefined ? "" : ` in ${when}`;
  if (reason === "stopped") {
    const message = excluded ?? `${ref.id} failed${during}: it must run to the end, and stopped`;
    const isExcluded = excluded !== undefined;
    return { worker: ref.id, kind: "exit", message, isWedged: false, isExcluded };
  }
  const { actor, handling, error, kind } = reason;
  const doing = handling ? ` while handling ${handling}` : "";
  // The isolate that has ended may have another actor, too.
  const worker = kind === "exit" ? ref.id : actor;
  const message = `${worker} failed${during}${doing}: ${error.message}`;
  return { worker, kind, message, isWedged: false };
}

/** The initial data of the supervisor. */
export interface SupervisorInit extends InFlightOptions {
  /** The initial data of its workers. */
  readonly workers: readonly WorkerInit[];
  /** The actor that replaces the built-in worker; it is trusted like the program. */
  readonly worker?: ActorSpec<WorkerInit, WorkerMessage>;
  /** The workers, if they have been started in homes. */
  readonly spawned?: readonly ActorRef<WorkerMessage>[];
  /** The place of the workers: in the isolate of the supervisor, or each in a new isolate. */
  readonly isolate: PlaceName;
  /** The limit of the JavaScript heap of each worker, in MiB. Default: that of V8. */
  readonly heapLimitMb?: number | undefined;
  /** The time at which weights change. */
  readonly updates: WeightUpdates;
  /** The largest norm of all gradients; a larger one is scaled down. */
  readonly clip?: number | undefined;
  /** True if the survivors of a lost worker freeze, so that their state can be read. */
  readonly freezes?: boolean | undefined;
  /** True if the sums of all copies are compared before a commit. */
  readonly verifies?: boolean | undefined;
}

/** A step in progress. */
export interface StepRecord {
  /** The number of steps tried. */
  readonly round: number;
  readonly request: StepRequest;
  readonly plan: StepPlan;
  readonly reply: Reply;
  /** For each data-parallel replica, its first micro-batch, counted since the pipe was empty. */
  readonly first: readonly number[];
  readonly losses: Float32Array[];
  /** The decision on its commit, if the step ends with a flush. */
  readonly decision: CommitDecision | undefined;
  /** The sums of squares of each update that stages have made by themselves. */
  readonly updates: Map<string, number>[];
  readonly traces: (readonly TracedAction[])[];
  /** The digests of the sums of all copies, and other errors that were found. */
  readonly digests: CopyDigest[];
  readonly doubts: Doubt[];
  /** True once its Begin was sent. */
  hasBegun: boolean;
  isCommitted: boolean;
  /** The number of workers that have not ended it. */
  endsMissing: number;
}

/** The peaks and the memory of all workers. */
interface PeakUsage {
  readonly peakActivations: number[];
  readonly weights: number[];
  readonly memory: StageMemory[];
}

/** Opens the record of a requested step. */
export function openStepRecord(
  { workers, updates, eagerStages, clip, freezes, verifies }: SupervisorInit,
  asked: Pick<StepRecord, "round" | "request" | "plan" | "reply" | "first">,
): StepRecord {
  const copies = workers[0]!.copies.map(({ length }) => length);
  const { isFlushed } = UPDATE_POLICIES[updates];
  return {
    ...asked,
    losses: [],
    decision: isFlushed
      ? new CommitDecision({
        ...{ copies, workers: workers.length, eagerStages, clip },
        waitsForSums: freezes || verifies || asked.request.jobs !== undefined,
      })
      : undefined,
    updates: [],
    traces: workers.map(() => []),
    ...{ digests: [], doubts: [] },
    hasBegun: false,
    isCommitted: false,
    endsMissing: workers.length,
  };
}

/** Notes that a worker has ended a step. @returns true if all have. */
export function endFor(
  step: StepRecord,
  held: PeakUsage,
  done: Extract<SupervisorMessage, { type: "StepDone" }>,
): boolean {
  const { worker } = done;
  held.peakActivations[worker] = done.peakActivations;
  held.weights[worker] = done.weights;
  held.memory[worker] = done.memory;
  step.traces[worker] = done.trace;
  for (const [u, squares] of done.updates.entries()) {
    const sums = step.updates[u] ??= new Map();
    for (const [name, sum] of squares) sums.set(name, sum);
  }
  return --step.endsMissing === 0;
}

/**
 * Returns the losses of a step; each arrives before the gradients that depend on it.
 *
 * @throws {Error} if a loss is missing, as after a transport has lost a message.
 */
export function allLosses({ request: { step, microBatches }, losses }: StepRecord) {
  const missing = microBatches.findIndex((_, id) => !losses[id]);
  if (missing < 0) return losses;
  throw new Error(`Cannot end step ${step}: the loss of micro-batch ${missing} must have come`);
}

/** Returns the outcome of a step that all workers have ended. */
export function outcomeOf(step: StepRecord, held: PeakUsage): StepOutcome {
  const { traces, decision, digests, doubts } = step, losses = allLosses(step);
  const verified = digests.length + doubts.length > 0 ? { digests, doubts } : {};
  if (!decision) {
    const { updates } = step;
    return { losses, updates, isCommitted: areFinite(losses, updates), ...held, traces };
  }
  const { isCommitted, request: { lossScale } } = step;
  const unscaled = [...decision.squares].map(([name, sum]) =>
    [name, sum / lossScale ** 2] as const
  );
  const updates = isCommitted ? [new Map(unscaled)] : [];
  return { losses, updates, isCommitted, ...held, traces, ...verified };
}

/**
 * The state of the supervisor.
 *
 * - `starting`: not all workers are ready.
 * - `idle`: the pipe is empty.
 * - `stepping`: micro-batches are in the pipe; without flushes, of any number of steps.
 * - `deciding`: all copies have voted; the decision waits for the norm of the gradients.
 * - `ending`: it has sent Commit or Abort.
 * - `draining`: no more steps begin, and the steps in progress end.
 * - `evaluating`: micro-batches of an evaluation are in the pipe.
 * - `saving`: weights and moments are in transit.
 * - `freezing`: a worker has ended, and the others end or drop the step.
 * - `frozen`: their weights and moments can be read.
 * - `lost`: a worker has ended. Questions are answered with its loss, other messages are dropped.
 */
export type SupervisorState =
  | "starting"
  | "idle"
  | "stepping"
  | "deciding"
  | "ending"
  | "draining"
  | "evaluating"
  | "saving"
  | "freezing"
  | "frozen"
  | "lost";

/** The state of the supervisor. */
export class Supervisor {
  readonly replies: PendingReplies;
  readonly held: PeakUsage;
  /** The workers that are lost. */
  readonly gone = new Set<number>();
  /** Called when a survivor is frozen or lost, too. */
  takeFrozen?: (worker: number) => void;
  state: SupervisorState = "starting";
  /** The current activity if it is not a step, for reports. */
  pause = "the start";
  /** The number of requested steps. */
  round = 0;
  /** The steps in progress, the oldest first: one, or without flushes any number. */
  steps: StepRecord[] = [];
  flow: ReturnType<typeof emptyFlow>;
  /** The receivers of the answers of workers to the current question. */
  takeReady?: Take<undefined>;
  takeState?: Take<StageState>;
  takeDigests?: Take<readonly CopyDigest[]>;
  /** Reason why a worker was ended. */
  excluded?: string;
  takeFetched?: (values: Float32Array<ArrayBuffer>, nth: number | undefined) => void;
  /** The number of fetches so far. */
  fetches = 0;
  takeWritten?: Take<WriteOutcome>;
  drained?: () => void;
  evaluation?: Evaluation;

  constructor(
    readonly ctx: Context<SupervisorMessage>,
    readonly init: SupervisorInit,
    readonly workers: readonly ActorRef<WorkerMessage>[],
  ) {
    const zeros = () => workers.map(() => 0);
    this.replies = new PendingReplies(ctx);
    this.held = { peakActivations: zeros(), weights: zeros(), memory: [] };
    this.flow = emptyFlow(init);
  }
}

/**
 * Returns the numbers of requested, injected and credited micro-batches of each data-parallel replica
 * since the pipe was empty.
 */
export function emptyFlow({ workers }: SupervisorInit) {
  const zeros = () => new Array<number>(workers.at(-1)!.replica + 1).fill(0);
  return { known: zeros(), injected: zeros(), credited: zeros() };
}

/** Sends a message to all workers. */
export function broadcast({ ctx, workers }: Supervisor, message: WorkerMessage): void {
  for (const worker of workers) ctx.send(worker, message, { lane: "control" });
}

/** Returns the step of a round. */
export function stepOfRound({ steps }: Supervisor, round: number | undefined): StepRecord {
  const step = steps.find((one) => one.round === round);
  if (step) return step;
  throw new Error(`Cannot find round ${round}: its step must have begun`);
}

/** Returns the current activity, for reports. */
export function currentActivity({ steps: [oldest], pause }: Supervisor): string {
  return oldest ? `step ${oldest.request.step}` : pause;
}

/** Returns a worker with the state of a stage, or undefined if all such workers are gone. */
export function holderOf({ init, gone }: Supervisor, stage: number): number | undefined {
  const { copies, buddies } = init.workers[0]!;
  return [...copies[stage]!.map(({ worker }) => worker), buddies?.[stage]]
    .find((worker) => worker !== undefined && !gone.has(worker));
}

/** Returns the worker of the first stage of a pipeline. */
export function entryOf({ init, workers }: Supervisor, replica: number, pipe: number) {
  const [copies] = init.workers[0]!.copies;
  return workers[
    copies!.find((copy) => copy.replica === replica && copy.pipe === pipe)!.worker
  ]!;
}

/** Injects micro-batches of a replica up to the limits in flight and ahead. */
export function inject(supervisor: Supervisor, replica: number): void {
  const { ctx, init, flow: { injected, credited } } = supervisor;
  while (injected[replica]! - credited[replica]! < init.injectionLimit + init.ahead) {
    const next = injected[replica]!;
    const step = supervisor.steps.find(({ first, plan }) =>
      next < first[replica]! + plan.shares[replica]!.pipeOf.length
    );
    if (!step) return;
    if (!step.hasBegun) begin(supervisor, step);
    injected[replica]!++;
    const share = step.plan.shares[replica]!, index = next - step.first[replica]!;
    ctx.send(entryOf(supervisor, replica, share.pipeOf[index]!), {
      type: "Inject",
      microBatch: next,
      fields: step.request.microBatches[share.first + index]!,
      isEvaluation: false,
    });
  }
}

/** Notes that a micro-batch has left the pipe, and injects the next. */
export function credit(supervisor: Supervisor, replica: number): void {
  supervisor.flow.credited[replica]!++;
  inject(supervisor, replica);
}

/** Begins a step, before its first micro-batch. */
function begin({ ctx, init, workers }: Supervisor, step: StepRecord): void {
  const { round, request, plan: { shares, policies, lossScales, updates, dropout } } = step;
  step.hasBegun = true;
  for (const [w, worker] of workers.entries()) {
    const share = shares[init.workers[w]!.replica]!, { first, pipeOf } = share;
    ctx.send(worker, {
      type: "Begin",
      round,
      share,
      policy: policies?.[w],
      lossScales: lossScales.slice(first, first + pipeOf.length),
      updates,
      ...dropout && { dropout },
      ...request.jobs && { jobs: request.jobs },
    }, { lane: "control" });
  }
}
