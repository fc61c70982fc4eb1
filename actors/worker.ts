/**
 * The worker: an actor that owns one device and one or more stages.
 *
 * Its mailbox is the receive-dispatch loop of AxoNN (section 4.1, Algorithm 2). What arrives makes
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
  openDevice,
  openStage,
  type OptimizerOptions,
  type Stage,
  type StageProgram,
  type StageState,
} from "../kernels/mod.ts";
import {
  type Action,
  formatAction,
  parts,
  type PlacedStage,
  takeOffers,
} from "../schedules/mod.ts";
import { type PolicyData, restorePolicy } from "./policy_data.ts";
import type { SupervisorMessage, WorkerMessage } from "./protocol.ts";
import type { ActorFactory, ActorRef, ActorSpec } from "./runtime/mod.ts";

/** Everything a worker is made from, as plain data. */
export interface WorkerInit {
  readonly worker: number;
  readonly device: DeviceChoice;
  readonly stages: readonly { readonly program: StageProgram; readonly state: StageState }[];
  /** For each worker the stages that it holds. */
  readonly placement: readonly (readonly PlacedStage[])[];
  readonly policy: PolicyData;
  readonly optimizer: OptimizerOptions;
  /** Whether the policy splits a backward into I and W. */
  readonly backward: "whole" | "split";
  /** One over the number of predictions of a step: the factor of the loss. */
  readonly lossScale: number;
}

/** How a worker is made in any isolate. */
export const WORKER: ActorSpec<WorkerInit, WorkerMessage> = {
  module: import.meta.url,
  export: "pipelineWorker",
};

/** What waits for its F or B. */
interface Arrival {
  readonly tensor?: Float32Array<ArrayBuffer>;
  readonly fields: Batch;
}

/** Makes a worker. Handled messages: {@linkcode WorkerMessage}. */
export const pipelineWorker: ActorFactory<WorkerInit, WorkerMessage> = async (ctx, init) => {
  const held = init.placement[init.worker]!;
  const stageCount = 1 + Math.max(...init.placement.flat().map(({ stage }) => stage));
  // In an isolate of its own the worker has nothing to do while a kernel computes.
  const isBlocking = ctx.self.isolate !== 0;
  const device = await openDevice(init.device.name, { ...init.device, isBlocking });
  ctx.defer(() => device.close());
  const stages = new Map<number, Stage>();
  for (const [i, { program, state }] of init.stages.entries()) {
    const stage = await openStage(device, program, {
      optimizer: init.optimizer,
      backward: init.backward,
    });
    stage.load(state);
    stages.set(held[i]!.stage, stage);
  }
  /** One stage in units of Ma: the activations of one P-th of the model. */
  const stageShare = init.placement.length / stageCount;
  let peers: {
    supervisor: ActorRef<SupervisorMessage>;
    workers: readonly ActorRef<WorkerMessage>[];
  };
  let policy = restorePolicy(init.policy);
  let isDispatching = false;
  let peak = 0;
  const ready: Action[] = [];
  const arrivals = new Map<string, Arrival>();
  /** Emptied arrays by `stage`: for the activations that it sends. */
  const pool = new Map<number, Float32Array<ArrayBuffer>[]>();
  /** Emptied arrays by `stage/microBatch`: for the gradient that goes back. */
  const returns = new Map<string, Float32Array<ArrayBuffer>>();

  const workerOf = (stage: number) =>
    peers.workers[init.placement.findIndex((list) => list.some((one) => one.stage === stage))]!;

  const arrive = (action: Action, arrival: Arrival) => {
    arrivals.set(formatAction(action), arrival);
    ready.push(action);
    if (isDispatching) return;
    isDispatching = true;
    ctx.send(ctx.self, { type: "Dispatch" });
  };

  const takeArrival = (action: Action): Arrival => {
    const key = formatAction(action), arrival = arrivals.get(key);
    if (!arrival) throw new Error(`Cannot run ${key}: its input must have arrived`);
    arrivals.delete(key);
    return arrival;
  };

  const sendActivation = (
    stage: number,
    microBatch: number,
    tensor: Float32Array<ArrayBuffer>,
    fields: Batch,
    isEvaluation: boolean,
  ) =>
    ctx.send(
      workerOf(stage),
      { type: "Activation", stage, microBatch, tensor, fields, isEvaluation },
      { transfer: [tensor.buffer] },
    );

  const sendLoss = (microBatch: number, losses: Float32Array) =>
    ctx.send(peers.supervisor, { type: "Loss", microBatch, losses });

  const runForward = async (action: Action) => {
    const { stage: index, microBatch } = action;
    const { tensor, fields } = takeArrival(action);
    const stage = stages.get(index)!;
    const { output, isLoss } = await stage.forward(
      microBatch,
      tensor,
      fields,
      stage.isLast ? undefined : pool.get(index)?.pop(),
    );
    const live = [...stages.values()].reduce((sum, one) => sum + one.liveActivations, 0);
    peak = Math.max(peak, live * stageShare);
    if (tensor) returns.set(`${index}/${microBatch}`, tensor);
    if (!isLoss) return sendActivation(index + 1, microBatch, output, fields, false);
    sendLoss(microBatch, output);
    arrive({ kind: "B", stage: index, microBatch }, { fields: {} });
  };

  /** B; or I, after which W is ready, which nothing waits for but the end of the step. */
  const runBackward = async ({ kind, stage: index, microBatch }: Action) => {
    const stage = stages.get(index)!, key = `${index}/${microBatch}`;
    if (kind === "W") {
      takeArrival({ kind, stage: index, microBatch });
      await stage.backward(microBatch, "W", undefined, init.lossScale);
    } else {
      const { tensor: gradient } = takeArrival({ kind: "B", stage: index, microBatch });
      const into = returns.get(key), part = kind === "I" ? "I" : "B";
      returns.delete(key);
      const dx = await stage.backward(microBatch, part, gradient, init.lossScale, into);
      if (gradient) pool.set(index, [...pool.get(index) ?? [], gradient]);
      if (dx) {
        const message = { type: "Gradient", stage: index - 1, microBatch, tensor: dx } as const;
        ctx.send(workerOf(index - 1), message, { transfer: [dx.buffer] });
      }
      if (kind === "I") return arrive({ kind: "W", stage: index, microBatch }, { fields: {} });
    }
    if (index === 0) ctx.send(peers.supervisor, { type: "Credit", microBatch });
  };

  const reportGradients = async () => {
    const squares = new Map<string, number>();
    for (const stage of stages.values()) {
      for (const [name, sum] of await stage.gradientSquares()) squares.set(name, sum);
    }
    ctx.send(peers.supervisor, { type: "GradientsReady", squares });
  };

  /** Forward only: runs at once, since no policy orders evaluations. */
  const evaluate = async (
    index: number,
    microBatch: number,
    tensor: Float32Array<ArrayBuffer> | undefined,
    fields: Batch,
  ) => {
    const stage = stages.get(index)!;
    const { output, isLoss } = await stage.forward(microBatch, tensor, fields);
    stage.drop(microBatch);
    if (isLoss) sendLoss(microBatch, output);
    else sendActivation(index + 1, microBatch, output, fields, true);
  };

  return {
    Connect({ supervisor, workers }) {
      peers = { supervisor, workers };
      ctx.reply(undefined);
    },
    Inject({ microBatch, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(0, microBatch, undefined, fields);
      arrive({ kind: "F", stage: 0, microBatch }, { fields });
    },
    Activation({ stage, microBatch, tensor, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(stage, microBatch, tensor, fields);
      arrive({ kind: "F", stage, microBatch }, { tensor, fields });
    },
    Gradient({ stage, microBatch, tensor }) {
      arrive({ kind: "B", stage, microBatch }, { tensor, fields: {} });
    },
    async Dispatch() {
      isDispatching = false;
      const action = policy.next(ready);
      if (!action) return;
      takeOffers(ready, action);
      ctx.doing(formatAction(action));
      // An overlap F&B is one action of the list; on one device its parts run in turn.
      for (const part of parts(action)) {
        await (part.kind === "F" ? runForward(part) : runBackward(part));
      }
      if (policy.done) await reportGradients();
      if (ready.length > 0 && !isDispatching) {
        isDispatching = true;
        ctx.send(ctx.self, { type: "Dispatch" });
      }
    },
    async Optimize({ step, learningRate }) {
      ctx.doing(`optimizer of step ${step}`);
      for (const stage of stages.values()) {
        await stage.optimize(step, learningRate);
        stage.zeroGradients();
      }
      policy = restorePolicy(init.policy);
      ctx.send(peers.supervisor, {
        type: "StepDone",
        worker: init.worker,
        peakActivations: peak,
      });
    },
    async Save() {
      const weights = new Map<string, Float32Array>(), moments = new Map<string, Float32Array>();
      for (const stage of stages.values()) {
        const part = await stage.save();
        for (const [name, values] of part.weights) weights.set(name, values);
        for (const [name, values] of part.moments) moments.set(name, values);
      }
      const arrays = [...weights.values(), ...moments.values()];
      ctx.reply({ weights, moments } satisfies StageState, {
        transfer: arrays.map(({ buffer }) => buffer as ArrayBuffer),
      });
    },
  };
};
