/**
 * The worker of a run without flushes: one stage that never waits for the end of a step.
 *
 * [Note: staleness] The order is that of 1F1B for ever: stage s of D runs w = D − 1 − s forwards
 * ahead, then a forward and a backward in turn. Where the next action has not got its input, the
 * worker waits, though another could run: so F of micro-batch m always comes after exactly
 * max(0, m − w) backwards, and the weights that it sees do not depend on timing. Micro-batches are
 * counted since the pipe was last empty.
 *
 * @module
 */

import {
  type Batch,
  type DeviceChoice,
  type MessageArray,
  openDevice,
  openStage,
  type StageOptions,
  type StageProgram,
  type StageState,
} from "../../kernels/mod.ts";
import { B, F, formatAction } from "../../schedules/mod.ts";
import type {
  AsyncPeerMessage,
  AsyncSupervisorMessage,
  AsyncWorkerMessage,
  Update,
  UpdateTerms,
} from "./async_protocol.ts";
import { openFault, type WorkerFault } from "./worker/faults.ts";
import { type LinkOptions, openLink } from "./emulated_link.ts";
import type { TracedAction, WorkerReport } from "./protocol.ts";
import type { ActorFactory, ActorRef, ActorSpec, Handlers } from "../runtime/mod.ts";
import { moved } from "./stage_states.ts";

/** Everything a worker is made from, as plain data. */
export interface AsyncWorkerInit {
  /** Its number, which is that of its stage. */
  readonly worker: number;
  /** Workers of the pipeline, D. */
  readonly workers: number;
  readonly device: DeviceChoice;
  readonly program: StageProgram;
  readonly state: StageState;
  readonly stage: StageOptions;
  readonly link?: LinkOptions | undefined;
  /** Whether it tells when each action ran. */
  readonly isTraced: boolean;
  /** How the worker fails, where a run is asked to suffer that. */
  readonly fault?: WorkerFault | undefined;
}

/** How a worker is made in any isolate. */
export const ASYNC_WORKER: ActorSpec<AsyncWorkerInit, AsyncWorkerMessage> = {
  module: import.meta.url,
  export: "asyncWorker",
};

/** A micro-batch whose F is still to run. */
interface Arrival {
  readonly tensor?: MessageArray | undefined;
  readonly fields: Batch;
  readonly terms: UpdateTerms;
}

/** A micro-batch between its F and its B. */
interface InFlight {
  readonly terms: UpdateTerms;
  /** The array that brought its activation, for the gradient that goes back. */
  readonly into: MessageArray | undefined;
}

/** Makes a worker. Handled messages: {@linkcode AsyncWorkerMessage}. */
export const asyncWorker: ActorFactory<AsyncWorkerInit, AsyncWorkerMessage> = async (ctx, init) => {
  const { worker: stage, workers: depth } = init, warmUp = depth - 1 - stage;
  // In an isolate of its own the worker has nothing to do while a kernel computes.
  const isBlocking = ctx.self.isolate !== 0;
  const device = await openDevice(init.device.name, { ...init.device, isBlocking });
  ctx.defer(() => device.close());
  const kernels = await openStage(device, init.program, init.stage);
  kernels.load(init.state);
  const link = openLink<AsyncPeerMessage>(ctx, init.link);
  let peers: {
    supervisor: ActorRef<AsyncSupervisorMessage>;
    workers: readonly ActorRef<AsyncWorkerMessage>[];
  };
  /** Since the pipe was last empty: F, B and updates that have run, and how many F there are. */
  let forwards = 0, backwards = 0, updates = 0, end = Infinity;
  const inputs: Arrival[] = [], gradients: MessageArray[] = [], inFlight: InFlight[] = [];
  /** Arrays that brought gradients, for the next activations. */
  const buffers: MessageArray[] = [];
  let isDispatching = false, peakActivations = 0, weights = 1, trace: TracedAction[] = [];

  const wantsForward = () => forwards - backwards <= warmUp && forwards < end;
  const isReady = () => {
    if (wantsForward()) return inputs.length > 0;
    return forwards > backwards && (kernels.isLast || gradients.length > 0);
  };
  /** Asks for the next action, once, when its input is there. */
  const dispatch = () => {
    if (isDispatching || !isReady()) return;
    isDispatching = true;
    ctx.send(ctx.self, { type: "Dispatch" });
  };
  // Edges are FIFO and every stage runs in ascending micro-batches: what comes first goes first.
  const assertNext = (microBatch: number, next: number) => {
    if (microBatch === next) return;
    throw new Error(
      `Cannot queue micro-batch ${microBatch} of stage ${stage}: ${next} must be next`,
    );
  };

  const failWhenDue = openFault(init.fault, init.worker);

  /** Says what runs now, for the report should it fail, and traces it. */
  const doing = async (name: string, run: () => Promise<void>) => {
    ctx.doing(name);
    failWhenDue();
    const start = ctx.now();
    await ctx.busy(run);
    if (init.isTraced) trace.push({ name, start, end: ctx.now() });
  };

  const sendOn = (
    microBatch: number,
    tensor: MessageArray,
    { fields, terms }: { fields: Batch; terms?: UpdateTerms },
  ) => {
    const message = { type: "Activation", microBatch, tensor, fields, terms } as const;
    link.send(peers.workers[stage + 1]!, message, { transfer: [tensor.buffer] });
  };
  const sendLoss = (microBatch: number, losses: MessageArray) =>
    ctx.send(peers.supervisor, { type: "Loss", microBatch, losses: losses as Float32Array });

  const runForward = async () => {
    const { tensor, fields, terms } = inputs.shift()!, microBatch = forwards++;
    const age = terms.version === undefined ? 0 : updates - terms.version;
    const into = kernels.isLast ? undefined : buffers.pop();
    const { output, isLoss } = await kernels.forward(microBatch, tensor, fields, into, age);
    peakActivations = Math.max(peakActivations, kernels.liveActivations);
    weights = Math.max(weights, kernels.weightVersions);
    inFlight.push({ terms, into: tensor });
    if (isLoss) sendLoss(microBatch, output);
    else sendOn(microBatch, output, { fields, terms });
  };

  const runBackward = async () => {
    const { terms, into } = inFlight.shift()!, microBatch = backwards++;
    const gradient = gradients.shift();
    const dx = await kernels.backward(microBatch, "B", gradient, terms.lossScale, into);
    if (gradient) buffers.push(gradient);
    if (dx) {
      const message = { type: "Gradient", microBatch, tensor: dx } as const;
      link.send(peers.workers[stage - 1]!, message, { transfer: [dx.buffer] });
    }
    if (stage === 0) ctx.send(peers.supervisor, { type: "Credit" });
  };

  const runUpdate = async (microBatch: number, { step, learningRate }: Update) => {
    const squares = await kernels.gradientSquares();
    await kernels.optimize(step, learningRate);
    kernels.zeroGradients();
    updates++;
    const held = { peakActivations, weights, memory: kernels.memory };
    const told = { worker: stage, microBatch, squares, ...held, trace };
    ctx.send(peers.supervisor, { type: "Updated", ...told });
    trace = [];
  };

  /** Forward only, at once: the pipe is empty. */
  const evaluate = async (microBatch: number, tensor: MessageArray | undefined, fields: Batch) => {
    const { output, isLoss } = await ctx.busy(() => kernels.forward(microBatch, tensor, fields));
    kernels.drop(microBatch);
    if (isLoss) sendLoss(microBatch, output);
    else sendOn(microBatch, output, { fields });
  };

  const endSegment = () => {
    if (backwards < end) return;
    forwards = backwards = updates = 0;
    end = Infinity;
    ctx.send(peers.supervisor, { type: "Drained" });
  };

  const handlers: Handlers<AsyncWorkerMessage> = {
    Connect({ supervisor, workers }) {
      peers = { supervisor, workers };
      ctx.send(supervisor, { type: "Ready", worker: stage });
    },
    Inject({ microBatch, fields, terms }) {
      if (!terms) return evaluate(microBatch, undefined, fields);
      assertNext(microBatch, forwards + inputs.length);
      inputs.push({ fields, terms });
      dispatch();
    },
    Activation({ microBatch, tensor, fields, terms }) {
      if (!terms) return evaluate(microBatch, tensor, fields);
      assertNext(microBatch, forwards + inputs.length);
      inputs.push({ tensor, fields, terms });
      dispatch();
    },
    Gradient({ microBatch, tensor }) {
      assertNext(microBatch, backwards + gradients.length);
      gradients.push(tensor);
      dispatch();
    },
    async Dispatch() {
      isDispatching = false;
      if (wantsForward()) await doing(formatAction(F(stage, forwards)), runForward);
      else {
        const microBatch = backwards, { update } = inFlight[0]!.terms;
        await doing(formatAction(B(stage, microBatch)), runBackward);
        if (update) await doing("optimizer", () => runUpdate(microBatch, update));
        endSegment();
      }
      dispatch();
    },
    Drain({ end: count }) {
      end = count;
      endSegment();
      dispatch();
    },
    OnLink({ message, arrivesAt }) {
      link.receive(message, arrivesAt);
    },
    async LinkDue() {
      for (const message of link.arrived()) {
        await (handlers[message.type] as (message: AsyncPeerMessage) => void | Promise<void>)(
          message,
        );
      }
    },
    Report() {
      const next = formatAction(wantsForward() ? F(stage, forwards) : B(stage, backwards));
      const hasMore = forwards > backwards || forwards < end;
      const waitsFor = hasMore ? next : "the next step";
      ctx.reply({ waitsFor, ready: isReady() ? [next] : [] } satisfies WorkerReport);
    },
    async Save() {
      const state = await ctx.busy(() => kernels.save());
      ctx.send(peers.supervisor, { type: "Saved", worker: stage, state }, moved(state));
    },
  };
  return handlers;
};
