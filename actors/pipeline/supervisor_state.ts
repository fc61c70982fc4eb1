/**
 * What the supervisor knows, and how micro-batches get in.
 *
 * [Note: credits] A micro-batch in flight holds activations on every worker, so only the number in
 * flight bounds memory (AxoNN, section III-C). The supervisor sends as many Inject as the schedule
 * allows and one more for each Credit that comes back. Nothing else ever waits: a send never blocks,
 * so no cycle of full mailboxes can form.
 *
 * @module
 */

import type { Batch, Slicing, StageProgram } from "../../kernels/mod.ts";
import type { StageMemory, StageState } from "../../kernels/internal.ts";
import type { WeightUpdates } from "../../schedules/mod.ts";
import { areFinite, CommitDecision } from "../gradients/commit.ts";
import { CHUNKS_UNDER_WAY } from "../gradients/sync.ts";
import { CompactingMap } from "../runtime/actor.ts";
import type {
  ActorRef,
  ActorSpec,
  Context,
  Down,
  Message,
  PlaceName,
  Reply,
} from "../runtime/mod.ts";
import type { SupervisorMessage, WorkerLost, WorkerMessage, WriteOutcome } from "./protocol.ts";
import {
  type StepOutcome,
  type StepPlan,
  type StepRequest,
  type TracedAction,
  UPDATE_POLICIES,
} from "./step.ts";
import type { WorkerInit } from "./worker_state.ts";

/** What a bound follows from, beside the worker itself. */
export interface InFlightOptions {
  /** Micro-batches that may be in flight in each data-parallel replica. */
  readonly injectionLimit: number;
  /** Stages whose all-reduce starts while other stages still run backward. */
  readonly eagerStages: readonly number[];
}

/**
 * The most messages that can wait for a worker, in both lanes.
 *
 * - A micro-batch in flight is one message somewhere: an Inject or Activation on its way forward, a
 *   Gradient on its way back, or the two halves of one, or one for each slice of its sequences. In an
 *   evaluation it is one, too. Beside it may wait what other stages send by name to those held here.
 * - For each stage copy held here, parts of all-reduces. In any algorithm a rank gets at most one
 *   part of each phase from each other rank, or as many from its neighbour, for each chunk:
 *   2(p − 1). No rank starts a chunk before that which lies {@linkcode CHUNKS_UNDER_WAY} behind it is
 *   complete there, for which this copy must have taken as many parts as may then come of the new
 *   one. Beside them, the gradients of what is tied to its parameters. Of a step that was aborted while
 *   stages reduced early, as many may still wait.
 * - Orders of the supervisor: with a flush the Begin of a step, its Reduce for each early stage and
 *   for the rest, and its Commit or Abort; without, a Begin for each micro-batch in flight, as a
 *   step begins with its first, and a Drain. Connect and Save come while nothing else is asked.
 * - A Dispatch or StepBucket to itself, a LinkDue, a Report.
 *
 * Where no stage reduces early, no part comes before the last backward of all workers.
 *
 * @example A worker of 1F1B holds at most what is in flight, and a few messages more
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const copies = [[{ stage: 0, rank: 0, replica: 0, pipe: 0, worker: 0 }]];
 * const worker = { held: [{ copy: copies[0]![0]! }], copies, ties: [[]], halves: 1 } as const;
 * const options = { injectionLimit: 4, eagerStages: [] };
 * assert.equal(mailboxBound({ ...worker, updates: "flush" }, options), 4 + 1 + 2);
 * assert.equal(mailboxBound({ ...worker, updates: "every-backward" }, options), 4 + 5 + 2);
 * ```
 */
export function mailboxBound(
  { held, copies, ties, halves, slicing, updates, link }: BoundedWorker,
  { injectionLimit, eagerStages }: InFlightOptions,
): number {
  const { isFlushed } = UPDATE_POLICIES[updates], early = eagerStages.length;
  const begins = isFlushed ? 1 : injectionLimit;
  const more = held.reduce((sum, { program: { skips = [] } = {} }) => sum + 2 * skips.length, 0);
  const runs = slicing?.slices ?? halves, computing = runs * injectionLimit * (1 + more) + begins;
  const parts = held.reduce((sum, { copy: { stage } }) => {
    const chunkParts = 2 * (copies[stage]!.length - 1);
    const others = ties[stage]!.reduce((count, { members }) => count + members.length - 1, 0);
    return sum + CHUNKS_UNDER_WAY * chunkParts + others;
  }, 0);
  const ending = isFlushed ? (early > 0 ? 2 : 1) * parts + early + 2 : 1;
  const own = 2 + (link ? 1 : 0);
  return own + (isFlushed && early === 0 ? Math.max(computing, ending) : computing + ending);
}

/** What of a worker its bound follows from. */
type BoundedWorker =
  & Pick<WorkerInit, "copies" | "ties" | "halves" | "updates" | "link">
  & {
    readonly held: readonly (
      & Pick<WorkerInit["held"][number], "copy">
      & { readonly program?: Pick<StageProgram, "skips"> }
    )[];
    /** How sequences are cut, where they are. */
    readonly slicing?: Slicing | undefined;
  };

/** At most one evaluation at a time. */
interface Evaluations {
  /** Whether one is under way. */
  readonly isRunning: boolean;
  /** Begins one; `reply` gets the losses by micro-batch. */
  begin(microBatches: readonly Batch[], reply: Reply): void;
  /** A loss has come. */
  add(microBatch: number, losses: Float32Array): void;
}

/** @param limit micro-batches that may be in flight. */
export function openEvaluations(
  limit: number,
  inject: (microBatch: number, fields: Batch) => void,
): Evaluations {
  let current: {
    readonly microBatches: readonly Batch[];
    readonly reply: Reply;
    readonly losses: Float32Array[];
    injected: number;
    missing: number;
  } | undefined;
  const next = () => {
    const { microBatches, injected } = current!;
    if (injected < microBatches.length) inject(current!.injected++, microBatches[injected]!);
  };
  return {
    get isRunning() {
      return current !== undefined;
    },
    begin(microBatches, reply) {
      current = { microBatches, reply, losses: [], injected: 0, missing: microBatches.length };
      for (let i = 0; i < limit; i++) next();
    },
    add(microBatch, losses) {
      current!.losses[microBatch] = losses;
      next();
      if (--current!.missing > 0) return;
      current!.reply(current!.losses);
      current = undefined;
    },
  };
}

/** Takes the part of a worker. */
type Take<T> = (worker: number, part: T) => void;

/**
 * Gathers parts.
 *
 * @param workers who sends one.
 * @param done gets the parts when all are there.
 */
export function gather<T>(
  workers: readonly number[],
  done: (parts: T[]) => void,
): Take<T> {
  const parts = new Map<number, T>();
  return (worker, part) => {
    parts.set(worker, part);
    if (parts.size === workers.length) done(workers.map((one) => parts.get(one)!));
  };
}

/** What is owed. */
interface OwedReplies {
  /** Takes over the reply to the message being handled. */
  owe(): Reply;
  /** A worker is gone: whoever waits for a reply gets this one. */
  giveUp(lost: WorkerLost): void;
  /** The same for one that has ended. @param when what was under way: `step 4`. */
  lose(down: Down, when: string | undefined): void;
}

/** Opens the replies of an actor. */
export function openOwedReplies<M extends Message>(ctx: Context<M, unknown>): OwedReplies {
  const waiting = new CompactingMap<Reply, true>();
  let lost: WorkerLost | undefined;
  const giveUp = (first: WorkerLost) => {
    lost ??= first;
    for (const [reply] of waiting) {
      waiting.take(reply);
      reply({ lost });
    }
  };
  return {
    owe() {
      const reply = ctx.deferReply();
      if (lost) reply({ lost });
      else waiting.set(reply, true);
      return (value, options) => {
        if (waiting.take(reply)) reply({ value }, options);
      };
    },
    giveUp,
    lose({ ref, reason }, when) {
      const during = when === undefined ? "" : ` in ${when}`;
      if (reason === "stopped") {
        const message = `${ref.id} failed${during}: it must run to the end, and stopped`;
        return giveUp({ worker: ref.id, kind: "exit", message, isWedged: false });
      }
      const { actor, handling, error, kind } = reason;
      const doing = handling ? ` while handling ${handling}` : "";
      const message = `${actor} failed${during}${doing}: ${error.message}`;
      giveUp({ worker: actor, kind, message, isWedged: false });
    },
  };
}

/** What the supervisor is made from. */
export interface SupervisorInit extends InFlightOptions {
  /** What each of its workers is made from. */
  readonly workers: readonly WorkerInit[];
  /** What makes a worker, where that is not Troupe's own. It is trusted as the program is. */
  readonly worker?: ActorSpec<WorkerInit, WorkerMessage>;
  /** Where the workers run: beside the supervisor, or each in an isolate of its own. */
  readonly isolate: PlaceName;
  /** Limit of the JavaScript heap of each worker, in MiB, where there can be one; V8's unless given. */
  readonly heapLimitMb?: number | undefined;
  /** When weights step. */
  readonly updates: WeightUpdates;
  /** The most that the norm of all gradients may be; more is scaled down. */
  readonly clip?: number | undefined;
}

/** A step under way. */
export interface StepRecord {
  /** Counts the steps tried. */
  readonly round: number;
  readonly request: StepRequest;
  readonly plan: StepPlan;
  readonly reply: Reply;
  /** For each data-parallel replica its first micro-batch, counted since the pipe was empty. */
  readonly first: readonly number[];
  readonly losses: Float32Array[];
  /** The commit, where the step ends with a flush. */
  readonly decision: CommitDecision | undefined;
  /** Sums of squares of each update that stages have made by themselves. */
  readonly updates: Map<string, number>[];
  readonly traces: (readonly TracedAction[])[];
  /** Whether the workers know of it. */
  hasBegun: boolean;
  isCommitted: boolean;
  /** Workers for which it has not ended. */
  endsMissing: number;
}

/** What workers have held so far. */
interface Held {
  readonly peakActivations: number[];
  readonly weights: number[];
  readonly memory: StageMemory[];
}

/** Opens the record of a step that is asked for. */
export function openStepRecord(
  { workers, updates, eagerStages, clip }: SupervisorInit,
  asked: Pick<StepRecord, "round" | "request" | "plan" | "reply" | "first">,
): StepRecord {
  const copies = workers[0]!.copies.map(({ length }) => length);
  const { isFlushed } = UPDATE_POLICIES[updates];
  return {
    ...asked,
    losses: [],
    decision: isFlushed
      ? new CommitDecision({ copies, workers: workers.length, eagerStages, clip })
      : undefined,
    updates: [],
    traces: workers.map(() => []),
    hasBegun: false,
    isCommitted: false,
    endsMissing: workers.length,
  };
}

/** A step has ended for a worker. @returns whether it has for all. */
export function endFor(
  step: StepRecord,
  held: Held,
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
 * The losses of a step, of which all have come: each before the gradients that follow from it.
 *
 * @throws when one has not, as where a transport loses messages.
 */
export function allLosses({ request: { step, microBatches }, losses }: StepRecord) {
  const missing = microBatches.findIndex((_, id) => !losses[id]);
  if (missing < 0) return losses;
  throw new Error(`Cannot end step ${step}: the loss of micro-batch ${missing} must have come`);
}

/** What a step gives that has ended for all workers. */
export function outcomeOf(step: StepRecord, held: Held): StepOutcome {
  const { traces, decision } = step, losses = allLosses(step);
  if (!decision) {
    const { updates } = step;
    return { losses, updates, isCommitted: areFinite(losses, updates), ...held, traces };
  }
  const { isCommitted, request: { lossScale } } = step;
  const unscaled = [...decision.squares].map(([name, sum]) =>
    [name, sum / lossScale ** 2] as const
  );
  return { losses, updates: isCommitted ? [new Map(unscaled)] : [], isCommitted, ...held, traces };
}

/**
 * What the supervisor is at.
 *
 * - `starting`: not all workers are ready.
 * - `idle`: the pipe is empty.
 * - `stepping`: micro-batches go through; without flushes, of any number of steps.
 * - `deciding`: all copies have voted; whether and how to commit waits for the norm of the gradients.
 * - `ending`: it has told all to commit or to abort.
 * - `draining`: no more steps begin, and those under way go to their ends.
 * - `evaluating`: micro-batches go through whose losses are wanted, and nothing else.
 * - `saving`: weights and moments are on their way.
 * - `lost`: a worker is gone. Each question is answered with that, all else is dropped.
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
  | "lost";

/** For each data-parallel replica, micro-batches since the pipe was empty. */
interface Flow {
  /** Those of the steps that were asked for. */
  readonly known: number[];
  /** Those that have entered. */
  readonly injected: number[];
  /** Those that have left. */
  readonly credited: number[];
}

/** What the supervisor knows. */
export interface Supervisor {
  readonly ctx: Context<SupervisorMessage>;
  readonly init: SupervisorInit;
  readonly workers: readonly ActorRef<WorkerMessage>[];
  readonly replies: OwedReplies;
  readonly evaluations: Evaluations;
  readonly held: Held;
  state: SupervisorState;
  /** What is under way where it is no step, for reports. */
  pause: string;
  /** Steps asked for. */
  round: number;
  /** The steps under way, the oldest first: one, but without flushes any number. */
  steps: StepRecord[];
  flow: Flow;
  /** Who takes what comes of each worker: that it is ready, its state or parts of it, its shard, that it is drained. */
  takeReady: Take<undefined>;
  takeState: Take<StageState>;
  takeFetched: (values: Float32Array<ArrayBuffer>) => void;
  takeWritten: Take<WriteOutcome>;
  drained: () => void;
}

/** Nothing is in the pipe. */
export function emptyFlow({ workers }: SupervisorInit): Flow {
  const zeros = () => new Array<number>(workers.at(-1)!.replica + 1).fill(0);
  return { known: zeros(), injected: zeros(), credited: zeros() };
}

/** Tells all workers. */
export function tellAll({ ctx, workers }: Supervisor, message: WorkerMessage): void {
  for (const worker of workers) ctx.send(worker, message, { lane: "control" });
}

/** The step of a round. */
export function stepOfRound({ steps }: Supervisor, round: number | undefined): StepRecord {
  const step = steps.find((one) => one.round === round);
  if (step) return step;
  throw new Error(`Cannot find round ${round}: its step must be under way`);
}

/** The step under way, for reports; else what is. */
export function underWay({ steps: [oldest], pause }: Supervisor): string {
  return oldest ? `step ${oldest.request.step}` : pause;
}

/** The worker where micro-batches of a pipeline enter. */
export function entryOf({ init, workers }: Supervisor, replica: number, pipe: number) {
  const [copies] = init.workers[0]!.copies;
  return workers[
    copies!.find((copy) => copy.replica === replica && copy.pipe === pipe)!.worker
  ]!;
}

/** Lets as many micro-batches of a data-parallel replica in as may be in flight. */
export function inject(supervisor: Supervisor, replica: number): void {
  const { ctx, init, flow: { injected, credited } } = supervisor;
  while (injected[replica]! - credited[replica]! < init.injectionLimit) {
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

/** A micro-batch has left the pipe; another may enter. */
export function credit(supervisor: Supervisor, replica: number): void {
  supervisor.flow.credited[replica]!++;
  inject(supervisor, replica);
}

/** A step begins with its first micro-batch. */
function begin({ ctx, init, workers }: Supervisor, step: StepRecord): void {
  const { round, plan: { shares, policies, lossScales, updates, dropout } } = step;
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
    }, { lane: "control" });
  }
}
