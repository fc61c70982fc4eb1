/**
 * The worker: an actor that owns one device and one or more stages.
 *
 * Its mailbox is the receive-dispatch loop of AxoNN (section III-C, Algorithm 2). What arrives makes
 * an action ready; a Dispatch that the worker sends to itself lets the policy pick one of them.
 *
 * [Note: one action for each Dispatch] The Dispatch stands in the mailbox behind everything that
 * had arrived when it was sent, so the policy sees all of it and may prefer a late backward to an
 * early forward. It also ends the step of the actor after each kernel: control messages and the
 * virtual clock get their turn between any two actions.
 *
 * [Note: FIFO and float order] Floating-point sums depend on their order. Gradients are summed as
 * the B of a stage run, so those must run in ascending micro-batches, whatever the timing. Lists
 * say so; message-driven runs get it from FIFO edges and from its policy, which lets no action
 * overtake another of the same stage and kind.
 *
 * [Note: buffers go to and fro] The array that brought an activation has the size of the gradient
 * that goes back, so it carries it; the array that brought a gradient is kept for the next
 * activation. In a steady state no array is allocated.
 *
 * @module
 */

import {
  type Batch,
  type DeviceChoice,
  type MessageArray,
  openDevice,
  type StageOptions,
  type StageState,
} from "../../../kernels/mod.ts";
import { type Action, formatAction, parts, takeOffers } from "../../../schedules/mod.ts";
import { openArrivals } from "./arrivals.ts";
import {
  type Closing,
  openClosing,
  type ReduceOptions,
  type TieEnd,
} from "../../commit/gradient_sync.ts";
import { openFault, type WorkerFault } from "./faults.ts";
import type { Share, StageCopy } from "../layout.ts";
import { type LinkOptions, openLink } from "../emulated_link.ts";
import { sumMemory } from "../../run/memory_plan.ts";
import { type PolicyData, restorePolicy } from "../policy_data.ts";
import type {
  PeerMessage,
  SupervisorMessage,
  TracedAction,
  WorkerMessage,
  WorkerReport,
} from "../protocol.ts";
import type { ActorFactory, ActorRef, ActorSpec, Handlers } from "../../runtime/mod.ts";
import { joinStates, moved } from "../stage_states.ts";
import { type CopyInit, openCopies, type OpenCopy } from "../stage_copies.ts";

/** Everything a worker is made from, as plain data. */
export interface WorkerInit {
  /** Its number over all data-parallel replicas. */
  readonly worker: number;
  /** Its data-parallel replica. */
  readonly replica: number;
  readonly device: DeviceChoice;
  /** Whether stand-ins take the place of kernels, and no device is opened. */
  readonly isRehearsed?: boolean | undefined;
  /** The copies of stages that it holds. */
  readonly held: readonly CopyInit[];
  /** For each stage all its copies. */
  readonly copies: readonly (readonly StageCopy[])[];
  /** Workers of a data-parallel replica: the P of "1/P of the model". */
  readonly pipelineWorkers: number;
  readonly policy: PolicyData;
  readonly stage: StageOptions;
  /** Runs of the kernels for each micro-batch: 2 where backwards run in halves. */
  readonly halves: 1 | 2;
  readonly reduce: ReduceOptions;
  /** For each stage the parameters that are tied to others. */
  readonly ties: readonly (readonly TieEnd[])[];
  readonly link?: LinkOptions | undefined;
  /** Whether to report when each action ran. */
  readonly isTraced: boolean;
  /** How the worker fails, where a run is asked to suffer that. */
  readonly fault?: WorkerFault | undefined;
}

/** How a worker is made in any isolate. */
export const WORKER: ActorSpec<WorkerInit, WorkerMessage> = {
  module: import.meta.url,
  export: "pipelineWorker",
};

/** What a step is about, from Begin to StepDone. */
interface Step {
  readonly round: number;
  readonly share: Share;
  readonly lossScale: number;
  readonly policy: ReturnType<typeof restorePolicy>;
  readonly closing: Closing;
  /** For each copy the backwards that are still to run, in micro-batches. */
  readonly backwardsMissing: Map<OpenCopy, number>;
}

/** What a worker lets tests and journals see of its state. */
export interface WorkerView {
  readonly isInStep: boolean;
  /** (stage, micro-batch) activations held. */
  readonly stash: number;
  /** Actions whose inputs have arrived. */
  readonly ready: number;
  readonly copies: readonly OpenCopy[];
}

/** Makes a worker. Handled messages: {@linkcode WorkerMessage}. */
export const pipelineWorker: ActorFactory<WorkerInit, WorkerMessage> = async (ctx, init) => {
  // In an isolate of its own the worker has nothing to do while a kernel computes.
  const isBlocking = ctx.self.isolate !== 0;
  const device = init.isRehearsed
    ? undefined
    : await openDevice(init.device.name, { ...init.device, isBlocking });
  ctx.defer(() => device?.close());
  const copies = await openCopies(device, init.held, init.stage, init.halves);
  /** One stage in units of Ma and Mθ: one P-th of the model. */
  const stageShare = init.pipelineWorkers / init.copies.length;
  const link = openLink<PeerMessage>(ctx, init.link);
  const arrivals = openArrivals();
  let peers: {
    supervisor: ActorRef<SupervisorMessage>;
    workers: readonly ActorRef<WorkerMessage>[];
  };
  let step: Step | undefined;
  /** Parts of all-reduces of a step that has not begun here. */
  let early: Extract<PeerMessage, { round: number }>[] = [];
  let isDispatching = false;
  let peak = 0;
  /** What ran in this step, when. */
  let trace: TracedAction[] = [];

  const failWhenDue = openFault(init.fault, init.worker);

  /** Says what runs now, for the report should it fail, and traces it. */
  const doing = async (name: string, run: () => void | Promise<void>) => {
    ctx.doing(name);
    failWhenDue();
    const start = ctx.now();
    await ctx.busy(run);
    if (init.isTraced) trace.push({ name, start, end: ctx.now() });
  };

  const hostOf = (stage: number, pipe: number) =>
    peers.workers[
      init.copies[stage]!.find((copy) => copy.replica === init.replica && copy.pipe === pipe)!
        .worker
    ]!;
  const running = (): Step => {
    if (step) return step;
    throw new Error("Cannot handle the message: a step must have begun");
  };
  const copyOf = ({ stage, microBatch }: Action) =>
    copies.of(stage, running().share.pipeOf[microBatch]!);

  /** Asks for the next action, once, when a step is under way. */
  const dispatch = () => {
    if (isDispatching || !step || arrivals.ready.length === 0) return;
    isDispatching = true;
    ctx.send(ctx.self, { type: "Dispatch" });
  };
  const arrive: typeof arrivals.add = (action, arrival) => {
    arrivals.add(action, arrival);
    dispatch();
  };

  const sendActivation = (
    pipe: number,
    stage: number,
    microBatch: number,
    tensor: MessageArray,
    fields: Batch,
    isEvaluation: boolean,
  ) =>
    link.send(
      hostOf(stage, pipe),
      { type: "Activation", stage, microBatch, tensor, fields, isEvaluation },
      { transfer: [tensor.buffer] },
    );

  const runForward = async (action: Action) => {
    const { stage, microBatch } = action, copy = copyOf(action), { share } = running();
    const { tensor, fields } = arrivals.takeForward(action);
    const into = copy.kernels.isLast ? undefined : arrivals.takeBuffer(stage);
    const { output, isLoss } = await copies.forward(copy, microBatch, tensor, fields, into);
    peak = Math.max(peak, copies.live * stageShare);
    if (tensor) arrivals.keepReturn(action, tensor);
    if (!isLoss) return sendActivation(copy.pipe, stage + 1, microBatch, output, fields, false);
    const losses = output as Float32Array;
    ctx.send(peers.supervisor, { type: "Loss", microBatch: share.first + microBatch, losses });
    arrive({ kind: "B", stage, microBatch }, { fields: {} });
  };

  /** B; or I, after which W is ready, which nothing waits for but the end of the step. */
  const runBackward = async (action: Action) => {
    const { kind, stage, microBatch, half } = action, copy = copyOf(action);
    const { lossScale } = running();
    const gradient = kind === "W" ? undefined : arrivals.takeGradient(action);
    if (kind === "W") arrivals.takeForward(action);
    const into = kind === "W" || half !== undefined ? undefined : arrivals.takeReturn(action);
    const dx = await copies.backward(copy, action, gradient, lossScale, into);
    if (gradient && half === undefined) arrivals.keepBuffer(stage, gradient);
    if (dx) {
      const message = { type: "Gradient", stage: stage - 1, microBatch, tensor: dx } as const;
      const whole = half === undefined ? message : { ...message, half };
      link.send(hostOf(stage - 1, copy.pipe), whole, { transfer: [dx.buffer] });
    }
    if (kind === "I") return arrive({ kind: "W", stage, microBatch }, { fields: {} });
    if (stage === 0 && half !== 0) {
      ctx.send(peers.supervisor, { type: "Credit", replica: init.replica });
    }
    await countBackward(copy, half === undefined ? 1 : 0.5);
  };

  const countBackward = async (copy: OpenCopy, done: number) => {
    const { backwardsMissing } = running(), missing = backwardsMissing.get(copy)! - done;
    backwardsMissing.set(copy, missing);
    if (missing > 0) return;
    const { stage, kernels } = copy, isSafe = await kernels.checkGradients(addends);
    ctx.send(peers.supervisor, { type: "GradientsReady", stage, isSafe });
  };
  /** The most gradients that are added to one: those of all copies, and of both ends of a tie. */
  const addends = init.copies[0]!.length * (init.ties.some((ends) => ends.length > 0) ? 2 : 1);

  /** Forward only: runs at once, since no policy orders evaluations. */
  const evaluate = async (
    stage: number,
    microBatch: number,
    tensor: MessageArray | undefined,
    fields: Batch,
  ) => {
    const copy = copies.of(stage, 0);
    const { output, isLoss } = await ctx.busy(() =>
      copies.forward(copy, microBatch, tensor, fields, undefined)
    );
    copies.drop(copy, microBatch);
    if (!isLoss) return sendActivation(0, stage + 1, microBatch, output, fields, true);
    ctx.send(peers.supervisor, { type: "Loss", microBatch, losses: output as Float32Array });
  };

  const openStepClosing = (round: number) =>
    openClosing(round, copies.all, {
      ...init.reduce,
      size: init.copies[0]!.length,
      ties: init.ties,
      dtype: init.stage.precision === "fp16" ? "f16" : "f32",
    }, {
      send(stage, rank, message, values) {
        const to = peers.workers[init.copies[stage]![rank]!.worker]!;
        link.send(to, message, values ? { transfer: [values.buffer] } : {});
      },
      wake: () => ctx.send(ctx.self, { type: "StepBucket" }),
      reduced: (squares) => ctx.send(peers.supervisor, { type: "Reduced", squares }),
      stepped: () => void (isStepped = true),
    });

  /** Whether every bucket of the step under way has been stepped. */
  let isStepped = false;
  const endStep = () => {
    isStepped = false;
    for (const { kernels } of copies.all) kernels.zeroGradients();
    step = undefined;
    ctx.send(peers.supervisor, {
      type: "StepDone",
      worker: init.worker,
      peakActivations: peak,
      weights: copies.all.length * stageShare,
      memory: sumMemory(copies.all.map(({ kernels }) => kernels.memory)),
      trace,
    });
    trace = [];
  };

  /** Handles what belongs to one step: keeps what is early, drops what is late. */
  const inStep = async (message: Extract<PeerMessage, { round: number }>) => {
    const current = step?.round ?? lastRound;
    if (message.round < current || (message.round === current && !step)) return;
    if (message.round > current) return void early.push(message);
    const { closing } = running(), { stage, rank } = message;
    await doing(
      `reduce ${stage}`,
      () =>
        message.type === "ReducePart"
          ? closing.receive(stage, rank, message.part)
          : closing.receiveTie(stage, rank, message.name, message.values),
    );
  };
  let lastRound = 0;

  const handlers: Handlers<WorkerMessage> = {
    Connect({ supervisor, workers }) {
      peers = { supervisor, workers };
      ctx.send(supervisor, { type: "Ready", worker: init.worker });
    },
    async Begin({ round, share, policy, lossScale }) {
      const missing = ({ pipe }: OpenCopy) => share.pipeOf.filter((one) => one === pipe).length;
      step = {
        round,
        share,
        lossScale,
        policy: restorePolicy(policy ?? init.policy),
        closing: openStepClosing(round),
        backwardsMissing: new Map(copies.all.map((copy) => [copy, missing(copy)])),
      };
      lastRound = round;
      for (const copy of copies.all) if (missing(copy) === 0) await countBackward(copy, 0);
      const waiting = early;
      early = [];
      for (const message of waiting) await inStep(message);
      dispatch();
    },
    Inject({ microBatch, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(0, microBatch, undefined, fields);
      arrive({ kind: "F", stage: 0, microBatch }, { fields });
    },
    Activation({ stage, microBatch, tensor, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(stage, microBatch, tensor, fields);
      arrive({ kind: "F", stage, microBatch }, { tensor, fields });
    },
    Gradient({ stage, microBatch, tensor, half }) {
      const action = { kind: "B", stage, microBatch } as const;
      arrive(half === undefined ? action : { ...action, half }, { tensor, fields: {} });
    },
    async Dispatch() {
      isDispatching = false;
      const action = step?.policy.next(arrivals.ready);
      if (!action) return;
      takeOffers(arrivals.ready, action);
      await doing(formatAction(action), async () => {
        // An overlap F&B is one action of the list; on one device its parts run in turn, and so do
        // the two forwards of a doubled one.
        for (const part of parts(action)) {
          await (part.kind === "F" ? runForward(part) : runBackward(part));
        }
      });
      dispatch();
    },
    Reduce: ({ stages }) => doing(`reduce ${stages}`, () => running().closing.reduce(stages)),
    ReducePart: inStep,
    TieGradient: inStep,
    Commit({ update, learningRate, gradientScale }) {
      running().closing.commit(update, learningRate, gradientScale);
      if (isStepped) endStep();
    },
    Abort: endStep,
    async StepBucket() {
      await doing("optimizer", () => running().closing.stepBucket());
      if (isStepped) endStep();
    },
    OnLink({ message, arrivesAt }) {
      link.receive(message, arrivesAt);
    },
    async LinkDue() {
      for (const message of link.arrived()) {
        await (handlers[message.type] as (message: PeerMessage) => void | Promise<void>)(message);
      }
    },
    Report() {
      const next = step?.policy.waitsFor;
      const waitsFor = !step ? "the next step" : next ? formatAction(next) : "messages";
      const ready = arrivals.ready.map(formatAction);
      ctx.reply({ waitsFor, ready } satisfies WorkerReport);
    },
    async Save() {
      const parts: StageState[] = [];
      for (const { kernels } of copies.all) parts.push(await ctx.busy(() => kernels.save()));
      const state = joinStates(parts);
      ctx.send(peers.supervisor, { type: "Saved", worker: init.worker, state }, moved(state));
    },
  };
  ctx.expose((): WorkerView => ({
    isInStep: step !== undefined,
    stash: copies.live,
    ready: arrivals.ready.length,
    copies: copies.all,
  }));
  return handlers;
};
