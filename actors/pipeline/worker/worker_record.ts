/**
 * What a worker knows, and what it tells the others.
 *
 * @module
 */

import { type Batch, keyed, type Passed } from "../../../kernels/mod.ts";
import type { Action, StepPolicy } from "../../../schedules/mod.ts";
import type { GradientSquares } from "../../commit/gradient_norm.ts";
import type { ActorRef, Context } from "../../runtime/mod.ts";
import type { EmulatedLink } from "../links/emulated_link.ts";
import type { PeerMessage, SupervisorMessage, WorkerMessage } from "../protocol.ts";
import { type RoutedStage, routesOf } from "../links/routes.ts";
import type { MicroBatchPart, OpenCopy, StageCopies } from "../stage_copies.ts";
import type { MicroBatchShare, StepDropout } from "../step_plan.ts";
import { sumMemory } from "../sum_memory.ts";
import { type LocalUpdates, UPDATE_POLICIES } from "../update_policy.ts";
import type { Activity } from "./activity.ts";
import type { Arrivals } from "./arrivals.ts";
import type { WorkerInit } from "./worker_init.ts";
import type { WorkerState } from "./worker_states.ts";

/** A step under way on a worker. */
export interface StepUnderWay {
  readonly round: number;
  /** Its first micro-batch, counted since the pipe was empty; with a flush it is always 0. */
  readonly first: number;
  readonly share: MicroBatchShare;
  readonly lossScales: readonly number[];
  readonly updates?: LocalUpdates | undefined;
  readonly dropout?: StepDropout | undefined;
}

/** The other actors. */
export interface Peers {
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
  /** Names of the recomputations that it orders, each of which its F makes ready. */
  recomputations: ReadonlySet<string>;
  /** Whether a Dispatch is on its way. */
  isDispatching: boolean;
  /** The most activations and weights held, in units of Ma and Mθ: one P-th of the model. */
  readonly peak: { activations: number; weights: number };
}

/** The step of a micro-batch. */
export function stepOf({ steps }: Worker, microBatch: number): StepUnderWay {
  const step = steps.findLast(({ first }) => first <= microBatch);
  if (step && microBatch - step.first < step.share.pipeOf.length) return step;
  throw new Error(`Cannot find micro-batch ${microBatch}: its step must be under way`);
}

/** Tells the supervisor. */
export function tell(
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

/** What decides the way of a copy's values. */
export const routed = ({ stage, kernels: { isLast }, skips = [] }: OpenCopy): RoutedStage => ({
  stage,
  isLast,
  skips,
});

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
  for (const [stage, tensor] of routesOf(routed(copy), "F", output)) {
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
  for (const [stage, tensor] of routesOf(routed(copy), "B", gradients)) {
    const { microBatch, ...rest } = part;
    sendToStage(worker, copy.pipe, { type: "Gradient", stage, microBatch, tensor, ...rest });
  }
}

/** Asks for the next action, once, while there may be one. */
export function dispatch(worker: Worker): void {
  const { ctx, state, isDispatching, arrivals } = worker;
  if (isDispatching || state !== "computing" || arrivals.ready.length === 0) return;
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
  tell(worker, {
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
