/**
 * What a worker knows, and what it tells the others.
 *
 * @module
 */

import type { Batch, DeviceChoice, Slicing } from "../../kernels/mod.ts";
import { keyed, type Passed, type StageOptions } from "../../kernels/internal.ts";
import type { Action, SkipEdge, StepPolicy, WeightUpdates } from "../../schedules/mod.ts";
import { Readiness } from "../../schedules/internal.ts";
import type { GradientSquares } from "../gradients/commit.ts";
import type { ReduceOptions, TieEnd } from "../gradients/sync.ts";
import type { ActorRef, Context } from "../runtime/mod.ts";
import type { Arrival, Arrivals } from "./arrivals.ts";
import { routesOf, type StageCopy } from "./layout.ts";
import type { EmulatedLink, LinkOptions } from "./links.ts";
import type { PeerMessage, SupervisorMessage, WorkerMessage } from "./protocol.ts";
import {
  type CopyInit,
  type KernelModule,
  type MicroBatchPart,
  type OpenCopy,
  type StageCopies,
  sumMemory,
} from "./stage_copies.ts";
import {
  listsOf,
  type LocalUpdates,
  type MicroBatchShare,
  type PolicyData,
  type StepDropout,
  type TracedAction,
  UPDATE_POLICIES,
} from "./step.ts";

/** One worker fails once, as it begins its nth action of training. */
export interface WorkerFault {
  /** The worker, counted over all data-parallel replicas. */
  readonly worker: number;
  /** Its actions before that, counted from its start. */
  readonly afterActions: number;
  /**
   * `throw`: its handler throws. `exit`: it calls `Deno.exit`. `close`: it closes itself. `loop`: it
   * never comes back. `memory`: it takes all memory that it can get. Of a worker that is no process
   * of its own, `memory` ends the whole program, and `loop` leaves a thread that cannot be ended.
   */
  readonly kind: "throw" | "exit" | "close" | "loop" | "memory";
}

/** Counts the actions of a worker, and fails when it is time. */
function openFault(fault: WorkerFault | undefined, worker: number): () => void {
  if (!fault || fault.worker !== worker) return () => {};
  let left = fault.afterActions;
  return () => {
    if (left-- === 0) PERFORM[fault.kind]();
  };
}

/** A thread that is terminated sees it between two waits of so many milliseconds. */
const LOOP_MS = 10;

const PERFORM: Readonly<Record<WorkerFault["kind"], () => void>> = {
  throw() {
    throw new Error("a fault was asked for");
  },
  exit: () => Deno.exit(3),
  close: () => self.close(),
  loop() {
    // It takes no core from those who find out.
    const nothing = new Int32Array(new SharedArrayBuffer(4));
    for (;;) Atomics.wait(nothing, 0, 0, LOOP_MS);
  },
  memory() {
    const hog: unknown[] = [];
    for (;;) hog.push(new Array(1_000_000).fill(hog.length));
  },
};

/** The same without first weights and moments, which nobody keeps once they are loaded. */
export function withoutStates(init: WorkerInit): WorkerInit {
  const state = { weights: new Map(), moments: new Map() };
  return { ...init, held: init.held.map((one) => ({ ...one, state })) };
}

/** How the sequences of its micro-batches are cut; undefined where they are not. */
export const slicingOf = ({ held }: Pick<WorkerInit, "held">): Slicing | undefined =>
  held[0]?.program.slicing;

/** Everything a worker is made from, as plain data. */
export interface WorkerInit {
  /** Its number over all data-parallel replicas. */
  readonly worker: number;
  /** Its data-parallel replica. */
  readonly replica: number;
  /** What computes. */
  readonly device: DeviceChoice;
  /** The module whose kernels run its stages; those of the device unless given. */
  readonly kernels?: KernelModule | undefined;
  /** The copies of stages that it holds. */
  readonly held: readonly CopyInit[];
  /** For each stage all its copies. */
  readonly copies: readonly (readonly StageCopy[])[];
  /** The skip edges between all stages; none unless given. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Workers of a data-parallel replica: the P of "1/P of the model". */
  readonly pipelineWorkers: number;
  /** When its weights step. */
  readonly updates: WeightUpdates;
  /** Who orders its actions in a step, where steps end with a flush. */
  readonly policy: PolicyData;
  /** How its stages store and step their weights. */
  readonly stage: StageOptions;
  /** Runs of the kernels for each micro-batch: 2 where backwards run in halves. */
  readonly halves: 1 | 2;
  /** How gradients of copies are added. */
  readonly reduce: ReduceOptions;
  /** For each stage the parameters that are tied to others. */
  readonly ties: readonly (readonly TieEnd[])[];
  /** Delays messages to others as such a link would. */
  readonly link?: LinkOptions | undefined;
  /** Whether to report when each action ran and when its input came. */
  readonly isTraced: boolean;
  /** How the worker fails, where a run is asked to suffer that. */
  readonly fault?: WorkerFault | undefined;
}

/** What a trace tells of an action beside its name and its times. */
type About = Omit<TracedAction, "name" | "start" | "end" | "sent">;

/** What a worker does. */
interface Activity {
  /**
   * Runs an action: says so, for the report should it fail, and traces it.
   *
   * @param about what a trace tells besides, asked for at its end.
   */
  run(name: string, action: () => void | Promise<void>, about?: () => About): Promise<void>;
  /** Now, when an input comes; undefined unless the run is traced. */
  arrival(): number | undefined;
  /** An output of the action under way is about to be sent. */
  sends(): void;
  /** What has run since it was asked last; nothing unless the run is traced. */
  takeTrace(): readonly TracedAction[];
}

/** Opens the activity of a worker. */
export function openActivity(
  ctx: Context<WorkerMessage>,
  { fault, worker, isTraced }: WorkerInit,
): Activity {
  const failWhenDue = openFault(fault, worker);
  const arrival = () => isTraced ? ctx.now() : undefined;
  let trace: TracedAction[] = [], sent: number | undefined;
  return {
    async run(name, action, about) {
      ctx.setActivity(name);
      sent = undefined;
      failWhenDue();
      const start = ctx.now();
      await ctx.busy(action);
      if (!isTraced) return;
      const times = { start, end: ctx.now(), ...sent !== undefined && { sent } };
      trace.push({ name, ...times, ...about?.() });
    },
    arrival,
    sends: () => void (sent = arrival()),
    takeTrace() {
      const taken = trace;
      trace = [];
      return taken;
    },
  };
}

/**
 * What a worker is at.
 *
 * - `connecting`: its stages are compiled; it does not know the others.
 * - `idle`: no step has begun; it may evaluate and save.
 * - `computing`: it runs forwards and backwards.
 * - `reducing`: all its backwards have run and it has voted; gradients are added.
 * - `committing`: it steps weights, bucket by bucket.
 */
export type WorkerState = "connecting" | "idle" | "computing" | "reducing" | "committing";

/** A message that begins a step. */
export type Begin = Extract<WorkerMessage, { type: "Begin" }>;

/** A step under way on a worker. */
interface StepUnderWay {
  readonly round: number;
  /** Its first micro-batch, counted since the pipe was empty; with a flush it is always 0. */
  readonly first: number;
  readonly share: MicroBatchShare;
  readonly lossScales: readonly number[];
  readonly updates?: LocalUpdates | undefined;
  readonly dropout?: StepDropout | undefined;
  /** Readiness of the actions of this worker. */
  readonly readiness: Readiness;
}

/** The other actors. */
interface Peers {
  readonly supervisor: ActorRef<SupervisorMessage>;
  readonly workers: readonly ActorRef<WorkerMessage>[];
}

/** What a worker knows. */
export interface Worker {
  readonly ctx: Context<WorkerMessage>;
  readonly init: WorkerInit;
  readonly copies: StageCopies;
  readonly arrivals: Arrivals;
  readonly link: EmulatedLink<PeerMessage>;
  readonly activity: Activity;
  state: WorkerState;
  peers: Peers | undefined;
  /** The steps under way, the oldest first: one, but without flushes any number. */
  steps: StepUnderWay[];
  /** Who orders the actions until the pipe is empty. */
  policy: StepPolicy | undefined;
  /** The actions whose inputs are here, in the order of their arrival: the policy picks from them. */
  readonly ready: Action[];
  /** Inputs of micro-batches whose step has not begun here. */
  early: (readonly [Action, Arrival])[];
  /** Whether a Dispatch is on its way. */
  isDispatching: boolean;
  /** The most activations and weights held, in units of Ma and Mθ: one P-th of the model. */
  readonly peak: { activations: number; weights: number };
}

/** The step of a micro-batch; undefined if it has not begun here. */
export function findStep({ steps }: Worker, microBatch: number): StepUnderWay | undefined {
  const step = steps.findLast(({ first }) => first <= microBatch);
  return step && microBatch - step.first < step.share.pipeOf.length ? step : undefined;
}

/** The step of a micro-batch. */
export function stepOf(worker: Worker, microBatch: number): StepUnderWay {
  const step = findStep(worker, microBatch);
  if (step) return step;
  throw new Error(`Cannot find micro-batch ${microBatch}: its step must be under way`);
}

/** Opens a step whose first micro-batch has the given number since the pipe was empty. */
export function openStep(
  { init }: Worker,
  { round, share, policy = init.policy, lossScales, updates, dropout }: Begin,
  first: number,
): StepUnderWay {
  const { copies, halves, edges } = init, stages = copies.length;
  const readiness = new Readiness({
    stages,
    first,
    microBatches: share.pipeOf.length,
    slices: slicingOf(init)?.slices,
    pipelineOf: share.pipeOf,
    // Each stage is a place of its own: a worker sends messages to itself, too.
    hosts: Int32Array.from({ length: stages * copies[0]!.length }, (_, i) => i),
    edges,
    hasHalves: halves === 2,
    joinsNeighbours: true,
  }, listsOf(policy));
  return { round, first, share, lossScales, updates, dropout, readiness };
}

/** Sends a message to the supervisor. */
export function send(
  { ctx, peers }: Worker,
  message: SupervisorMessage,
  options?: { readonly transfer: ArrayBuffer[] },
): void {
  ctx.send(peers!.supervisor, message, options);
}

/** A message with arrays for a stage. */
type StageMessage = Extract<PeerMessage, { tensor: Passed }>;

/** Sends to the worker that holds a stage, in a replica of the pipeline. */
function sendToStage(
  { init, peers, link, activity }: Worker,
  pipe: number,
  message: StageMessage,
): void {
  const { worker } = init.copies[message.stage]!.find((copy) =>
    copy.replica === init.replica && copy.pipe === pipe
  )!;
  // Before it goes: whoever sends may be kept from the core while the message arrives.
  activity.sends();
  const transfer = Object.values(keyed(message.tensor)).map(({ buffer }) => buffer);
  link.send(peers!.workers[worker]!, message, { transfer });
}

/** Sends the outputs of a stage to those that take them; the next one gets the fields, too. */
export function sendActivation(
  worker: Worker,
  copy: OpenCopy,
  { microBatch, slice }: MicroBatchPart,
  output: Passed,
  fields: Batch,
  isEvaluation: boolean,
): void {
  const part = { microBatch, ...slice !== undefined && { slice } };
  for (const [stage, tensor] of routesOf(copy, "F", output)) {
    const own = stage === copy.stage + 1 ? fields : {};
    const to = { type: "Activation", stage, ...part } as const;
    sendToStage(worker, copy.pipe, { ...to, tensor, fields: own, isEvaluation });
  }
}

/** Sends the gradients of what a stage was sent, of which the one before may have none. */
export function sendGradient(
  worker: Worker,
  copy: OpenCopy,
  part: Pick<Action, "microBatch" | "half" | "slice">,
  gradients: Passed,
): void {
  for (const [stage, tensor] of routesOf(copy, "B", gradients)) {
    const { microBatch, ...rest } = part;
    sendToStage(worker, copy.pipe, { type: "Gradient", stage, microBatch, tensor, ...rest });
  }
}

/** Sends itself a Dispatch, which runs the next action, if actions are ready and none is sent. */
export function runReadyActions(worker: Worker): void {
  const { ctx, state, isDispatching, ready } = worker;
  if (isDispatching || state !== "computing" || ready.length === 0) return;
  worker.isDispatching = true;
  ctx.send(ctx.self, { type: "Dispatch" });
}

/** Looks at what is held now. Weights have one version each, but without flushes. */
export function measure({ init, copies, peak }: Worker): void {
  const stageShare = init.pipelineWorkers / init.copies.length;
  peak.activations = Math.max(peak.activations, copies.live * stageShare);
  const weights = UPDATE_POLICIES[init.updates].isFlushed
    ? copies.all.length
    : copies.all.reduce((sum, { kernels }) => sum + kernels.weightVersions, 0);
  peak.weights = Math.max(peak.weights, weights * stageShare);
}

/** Says that a step has ended here, and what was held and done. */
export function reportStep(
  worker: Worker,
  { round }: StepUnderWay,
  updates: readonly GradientSquares[],
): void {
  const { init, copies, peak, activity } = worker;
  send(worker, {
    type: "StepDone",
    round,
    worker: init.worker,
    updates,
    peakActivations: peak.activations,
    weights: peak.weights,
    memory: sumMemory(copies.all.map(({ kernels }) => kernels.memory)),
    trace: activity.takeTrace(),
  });
}
