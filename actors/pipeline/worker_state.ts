/**
 * The state of a worker, and the messages that it sends.
 *
 * @module
 */

import type { Batch, DeviceChoice, Slicing, StageOptions, StageValues } from "../../kernels/mod.ts";
import { keyed, sumMemory } from "../../kernels/internal.ts";
import type { Action, SkipEdge, StepPolicy, WeightUpdates } from "../../schedules/mod.ts";
import { Readiness } from "../../schedules/internal.ts";
import { digestOf, digestOfValues, type GradientSquares } from "../gradients/commit.ts";
import type { ReduceOptions, TieEnd } from "../gradients/sync.ts";
import type { ActorRef, Context, SendOptions } from "../runtime/mod.ts";
import { type Arrival, Arrivals, EmulatedLink, type LinkOptions } from "./links.ts";
import { routesOf, type StageCopy } from "./layout.ts";
import type { PeerMessage, SupervisorMessage, WorkerMessage } from "./protocol.ts";
import {
  type CopyInit,
  type KernelModule,
  type MicroBatchPart,
  type OpenCopy,
  type StageCopies,
} from "./stage_copies.ts";
import {
  type Doubt,
  listsOf,
  type PolicyData,
  type TracedAction,
  UPDATE_POLICIES,
  type Verification,
} from "./step.ts";

/** A failure of one worker, as it begins its nth action of training. */
export interface WorkerFault {
  /** The worker, counted over all data-parallel replicas. */
  readonly worker: number;
  /** The number of its actions before that, from its start. */
  readonly afterActions: number;
  /**
   * `throw`: its handler throws. `exit`: it calls `Deno.exit`. `close`: it closes itself. `loop`: it
   * loops forever. `memory`: it allocates all memory. If the worker is not a process, `memory` ends the
   * whole program, and `loop` leaves a thread that cannot be ended.
   */
  readonly kind: "throw" | "exit" | "close" | "loop" | "memory";
}

/** Time of each wait of a loop, in milliseconds; a thread can be terminated between two waits. */
const LOOP_MS = 10;

const PERFORM: Readonly<Record<WorkerFault["kind"], () => void>> = {
  throw() {
    throw new Error("a fault was asked for");
  },
  exit: () => Deno.exit(3),
  close: () => self.close(),
  loop() {
    // Waiting leaves the core to the other threads.
    const nothing = new Int32Array(new SharedArrayBuffer(4));
    for (;;) Atomics.wait(nothing, 0, 0, LOOP_MS);
  },
  memory() {
    const hog: unknown[] = [];
    for (;;) hog.push(new Array(1_000_000).fill(hog.length));
  },
};

/** Returns the same without initial weights and moments, which are not needed after loading. */
export function withoutStates(init: WorkerInit): WorkerInit {
  const state = { weights: new Map(), moments: new Map() };
  const without = (copies: readonly CopyInit[]) => copies.map((one) => ({ ...one, state }));
  const { held, mirrors } = init;
  return { ...init, held: without(held), ...mirrors && { mirrors: without(mirrors) } };
}

/** The cut of the sequences into slices; undefined if they are not cut. */
export const slicingOf = ({ held }: Pick<WorkerInit, "held">): Slicing | undefined =>
  held[0]?.program.slicing;

/** The initial data of a worker. */
export interface WorkerInit {
  /** Its number, counted over all data-parallel replicas. */
  readonly worker: number;
  /** Its data-parallel replica. */
  readonly replica: number;
  /** The device that computes. */
  readonly device: DeviceChoice;
  /** The module whose kernels run its stages. Default: those of the device. */
  readonly kernels?: KernelModule | undefined;
  /** The copies of stages that it holds. */
  readonly held: readonly CopyInit[];
  /** True if its home keeps them, open, from the worker before. */
  readonly isKept?: true;
  /** The stages of another worker that it mirrors: it is their buddy. */
  readonly mirrors?: readonly CopyInit[];
  /** For each stage, its buddy, if it has one; absent if stages are not mirrored. */
  readonly buddies?: readonly (number | undefined)[] | undefined;
  /** For each stage, all its copies. */
  readonly copies: readonly (readonly StageCopy[])[];
  /** The skip edges between all stages. Default: none. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Workers of a data-parallel replica: the P of "1/P of the model". */
  readonly pipelineWorkers: number;
  /** The time at which weights change. */
  readonly updates: WeightUpdates;
  /** The most micro-batches in flight that entered here. */
  readonly pipelineLimit: number;
  /** The most micro-batches of a step that are injected without credits; 0 if steps overlap. */
  readonly uncredited: number;
  /** The policy that orders its actions in a step, if steps end with a flush. */
  readonly policy: PolicyData;
  /** Storage and optimizer of the weights of its stages. */
  readonly stage: StageOptions;
  /** Runs of the kernels for each micro-batch: 2 if backwards run in halves. */
  readonly halves: 1 | 2;
  /** The all-reduce of the gradients of copies. */
  readonly reduce: ReduceOptions;
  /** For each stage, the parameters that are tied to others. */
  readonly ties: readonly (readonly TieEnd[])[];
  /** A link whose delays are emulated for messages to other workers. */
  readonly link?: LinkOptions | undefined;
  /** Options of the verification. Default: results are not verified. */
  readonly verification?: Verification | undefined;
  /** True to report the times of actions and of their inputs. */
  readonly isTraced: boolean;
  /** A failure to inject. */
  readonly fault?: WorkerFault | undefined;
}

/** Details of a traced action. */
type TraceDetails = Omit<TracedAction, "name" | "start" | "end" | "sent">;

/** Runs, names and traces the actions of a worker. */
export class Activity {
  readonly #fault: WorkerFault | undefined;
  readonly #isTraced: boolean;
  #trace: TracedAction[] = [];
  #count = 0;
  #sent: number | undefined;

  constructor(
    private readonly ctx: Context<WorkerMessage>,
    { fault, worker, isTraced }: WorkerInit,
  ) {
    this.#fault = fault?.worker === worker ? fault : undefined;
    this.#isTraced = isTraced;
  }

  /**
   * Runs an action, whose name is in the report of a failure, and traces it.
   *
   * @param details called at its end, in a traced run.
   */
  async run(
    name: string,
    action: () => void | Promise<void>,
    details?: () => TraceDetails,
  ): Promise<void> {
    const ctx = this.ctx, fault = this.#fault;
    ctx.setActivity(name);
    this.#sent = undefined;
    if (fault && this.#count++ === fault.afterActions) PERFORM[fault.kind]();
    const start = ctx.now();
    await ctx.busy(action);
    if (!this.#isTraced) return;
    const sent = this.#sent, times = { start, end: ctx.now(), ...sent !== undefined && { sent } };
    this.#trace.push({ name, ...times, ...details?.() });
  }

  /** The time, for an input that arrives; undefined unless the run is traced. */
  arrival(): number | undefined {
    return this.#isTraced ? this.ctx.now() : undefined;
  }

  /** Notes that an output of the current action is about to be sent. */
  noteSend(): void {
    this.#sent = this.arrival();
  }

  /** The actions since the last call; empty unless the run is traced. */
  takeTrace(): readonly TracedAction[] {
    const taken = this.#trace;
    this.#trace = [];
    return taken;
  }
}

/**
 * The state of a worker.
 *
 * - `connecting`: its stages are compiled; it does not know the other actors.
 * - `idle`: no step has begun; it may evaluate and save.
 * - `computing`: it runs forwards and backwards.
 * - `reducing`: all its backwards have run and it has voted; gradients are added.
 * - `committing`: it steps weights, bucket by bucket.
 * - `frozen`: another worker is lost. Its state can be read; all other messages are dropped.
 */
export type WorkerState =
  | "connecting"
  | "idle"
  | "computing"
  | "reducing"
  | "committing"
  | "frozen";

/** A message that begins a step. */
export type Begin = Extract<WorkerMessage, { type: "Begin" }>;

/** A message with a micro-batch that enters the pipeline. */
type Inject = Extract<WorkerMessage, { type: "Inject" }>;

/** A step in progress on a worker. */
interface StepInProgress
  extends Pick<Begin, "round" | "share" | "lossScales" | "updates" | "dropout"> {
  /** Its first micro-batch, counted since the pipe was empty; 0 with a flush. */
  readonly first: number;
  /** Readiness of the actions of this worker. */
  readonly readiness: Readiness;
  /** Credits that the supervisor still waits for, at most. */
  credits: number;
}

/** The state of a worker. */
export class Worker {
  readonly arrivals: Arrivals = new Arrivals();
  readonly link: EmulatedLink<PeerMessage>;
  readonly activity: Activity;
  state: WorkerState = "connecting";
  /** The other actors. */
  peers: Omit<Extract<WorkerMessage, { type: "Connect" }>, "type"> | undefined;
  /** The steps in progress, the oldest first: one, or without flushes any number. */
  steps: StepInProgress[] = [];
  /** The policy that orders the actions until the pipe is empty. */
  policy: StepPolicy | undefined;
  /** The actions whose inputs are here, in the order of their arrival: the policy picks from them. */
  readonly ready: Action[] = [];
  /** Micro-batches that wait until one in flight has left, and the number in flight. */
  readonly entering: Inject[] = [];
  inFlight = 0;
  /** Inputs of micro-batches whose step has not begun here. */
  early: (readonly [Action, Arrival])[] = [];
  /** True while a Dispatch is in transit. */
  isDispatching = false;
  /** Errors that were found since the last report. */
  doubts: Doubt[] = [];
  /** Messages to the supervisor that wait for the next one. */
  readonly unsent: SupervisorMessage[] = [];
  /** Peaks of activations and weights, in units of Ma and Mθ: one P-th of the model. */
  readonly peak = { activations: 0, weights: 0 };

  /** @param mirrors The stages that it mirrors. */
  constructor(
    readonly ctx: Context<WorkerMessage>,
    readonly init: WorkerInit,
    readonly copies: StageCopies,
    readonly mirrors: readonly OpenCopy[],
  ) {
    this.link = new EmulatedLink<PeerMessage>(ctx, init.link);
    this.activity = new Activity(ctx, init);
  }
}

/** The step of a micro-batch; undefined if it has not begun here. */
export function findStep({ steps }: Worker, microBatch: number): StepInProgress | undefined {
  const step = steps.findLast(({ first }) => first <= microBatch);
  return step && microBatch - step.first < step.share.pipeOf.length ? step : undefined;
}

/** The step of a micro-batch. */
export function stepOf(worker: Worker, microBatch: number): StepInProgress {
  const step = findStep(worker, microBatch);
  if (step) return step;
  throw new Error(`Cannot find micro-batch ${microBatch}: its step must have begun`);
}

/** Opens a step whose first micro-batch has the given number since the pipe was empty. */
export function openStep(
  { init }: Worker,
  { round, share, policy = init.policy, lossScales, updates, dropout }: Begin,
  first: number,
): StepInProgress {
  const { copies, halves, edges } = init, stages = copies.length, slicing = slicingOf(init);
  const readiness = new Readiness({
    stages,
    first,
    microBatches: share.pipeOf.length,
    slices: slicing?.slices,
    pipelineOf: share.pipeOf,
    // Each stage has a separate inbox: a worker sends messages to itself, too.
    hosts: Int32Array.from({ length: stages * copies[0]!.length }, (_, i) => i),
    edges,
    parts: slicing?.slices ?? halves,
    joinsNeighbours: true,
  }, listsOf(policy));
  const credits = share.pipeOf.length - init.uncredited;
  return { round, first, share, lossScales, updates, dropout, readiness, credits };
}

/** Sends the waiting messages to the supervisor, then this one. */
export function send(
  { ctx, peers, unsent }: Worker,
  message: SupervisorMessage,
  options?: { readonly transfer: ArrayBuffer[] },
): void {
  for (const one of unsent.splice(0)) ctx.send(peers!.supervisor, one);
  ctx.send(peers!.supervisor, message, options);
}

/**
 * Returns whether each worker adds the gradients of a step without an order: no stage has another copy,
 * and no worker needs the sums of another.
 */
export const reducesAlone = (
  { copies, ties, buddies }: Pick<WorkerInit, "copies" | "ties" | "buddies">,
): boolean => copies[0]!.length === 1 && ties.every(({ length }) => length === 0) && !buddies;

/** Takes the errors that were found since the last report, for a message. */
export function takeDoubts(worker: Worker): { readonly doubts?: readonly Doubt[] } {
  const { doubts } = worker;
  worker.doubts = [];
  return doubts.length > 0 ? { doubts } : {};
}

/** Sends a message to another worker, with its checksum if messages are verified. */
export function sendToPeer(
  { init, link }: Worker,
  to: ActorRef<WorkerMessage>,
  message: PeerMessage,
  options: SendOptions,
): void {
  const isVerified = init.verification?.mode === "actions";
  link.send(to, isVerified ? { ...message, checksum: checksumOf(message) } : message, options);
}

function checksumOf(message: PeerMessage): number {
  if ("tensor" in message) return digestOfValues(message.tensor);
  const values = message.type === "ReducePart" ? message.part.values : message.values;
  return values ? digestOf(values) : 0;
}

/** Notes a message whose arrays have changed since they were sent. */
export function checkArrival(worker: Worker, message: PeerMessage): void {
  const { checksum, type, stage } = message;
  if (checksum === undefined || checksum === checksumOf(message)) return;
  worker.doubts.push({ what: `a ${type} to stage ${stage} changed on its way` });
}

/** A message with arrays to a stage. */
type StageMessage = Extract<PeerMessage, { tensor: StageValues }>;

/** Sends a message to the worker that holds a stage in a pipeline. */
function sendToStage(from: Worker, pipe: number, message: StageMessage): void {
  const { init, peers, activity } = from;
  const { worker } = init.copies[message.stage]!.find((copy) =>
    copy.replica === init.replica && copy.pipe === pipe
  )!;
  // Recorded before the send, because the receiver may preempt the sender immediately.
  activity.noteSend();
  const transfer = Object.values(keyed(message.tensor)).map(({ buffer }) => buffer);
  sendToPeer(from, peers!.workers[worker]!, message, { transfer });
}

/**
 * Sends the outputs of a stage to the stages that use them. The next one also gets the fields that it
 * and later ones read.
 */
export function sendActivation(
  worker: Worker,
  copy: OpenCopy,
  { microBatch, part }: MicroBatchPart,
  output: StageValues,
  fields: Batch,
  isEvaluation: boolean,
): void {
  const later = Object.fromEntries(copy.laterFields.map((name) => [name, fields[name]!]));
  for (const [stage, tensor] of routesOf(copy, "F", output)) {
    const own = stage === copy.stage + 1 ? later : {};
    const to = { type: "Activation", stage, microBatch, ...part && { part } } as const;
    sendToStage(worker, copy.pipe, { ...to, tensor, fields: own, isEvaluation });
  }
}

/** Sends the gradients of the inputs of a stage; that for the stage before may be empty. */
export function sendGradient(
  worker: Worker,
  copy: OpenCopy,
  { microBatch, part }: MicroBatchPart,
  gradients: StageValues,
): void {
  for (const [stage, tensor] of routesOf(copy, "B", gradients)) {
    const to = { type: "Gradient", stage, microBatch, ...part && { part } } as const;
    sendToStage(worker, copy.pipe, { ...to, tensor });
  }
}

/** Sends itself the next piece of its work, to begin after all messages that have arrived. */
export function goOn({ ctx }: Worker, message: WorkerMessage): void {
  ctx.send(ctx.self, message, { lane: "idle" });
}

/** Sends itself a Dispatch, which runs the next action, if actions are ready and none is sent. */
export function runReadyActions(worker: Worker): void {
  const { state, isDispatching, ready } = worker;
  if (isDispatching || state !== "computing" || ready.length === 0) return;
  worker.isDispatching = true;
  goOn(worker, { type: "Dispatch" });
}

/** Updates the peaks. With flushes, weights have one version. */
export function measure({ init, copies, peak }: Worker): void {
  const stageShare = init.pipelineWorkers / init.copies.length;
  peak.activations = Math.max(peak.activations, copies.live * stageShare);
  const weights = UPDATE_POLICIES[init.updates].isFlushed
    ? copies.all.length
    : copies.all.reduce((sum, { kernels }) => sum + kernels.weightVersions, 0);
  peak.weights = Math.max(peak.weights, weights * stageShare);
}

/** Reports the end of a step on this worker, with its peaks and its trace. */
export function reportStep(
  worker: Worker,
  { round }: StepInProgress,
  updates: readonly GradientSquares[],
): void {
  const { init, copies, mirrors, peak, activity } = worker;
  send(worker, {
    type: "StepDone",
    round,
    worker: init.worker,
    updates,
    peakActivations: peak.activations,
    weights: peak.weights,
    memory: sumMemory([...copies.all, ...mirrors].map(({ kernels }) => kernels.memory)),
    trace: activity.takeTrace(),
  });
}
