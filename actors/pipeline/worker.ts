/**
 * The worker: an actor that owns one device and one or more stages.
 *
 * Its mailbox is the receive-dispatch loop of AxoNN (section III-C, Algorithm 2). Inputs make actions
 * ready; a Dispatch that the worker sends to itself lets the policy pick one of them.
 *
 * [Note: one action for each Dispatch] The Dispatch is in the idle lane of the mailbox. So the
 * policy sees the actions of all messages that have arrived, also during the last kernel, and may
 * prefer a late backward to an early forward. It also ends the step of the actor after each kernel:
 * control messages and the virtual clock get their turn between any two actions.
 *
 * [Note: FIFO and float order] Floating-point sums depend on their order. The B of a stage add
 * gradients, so they must run in ascending order of micro-batches at any timing. Lists have this
 * order; message-driven runs get it from FIFO edges and from their policy, which lets no action
 * overtake another of the same stage and kind.
 *
 * @module
 */

import type { StageState } from "../../kernels/internal.ts";
import { formatAction } from "../../schedules/mod.ts";
import { type ShardOrder, writeShard } from "../checkpoints/read.ts";
import { type HeldState, parameterOf, watchReads } from "../checkpoints/tensors.ts";
import {
  assertFinite,
  type CopyDigest,
  digestOfStage,
  NonFiniteError,
} from "../gradients/commit.ts";
import type { ActorFactory, ActorSpec, Context, Handlers } from "../runtime/mod.ts";
import { inputHandlers, type WeightUpdater } from "./compute.ts";
import {
  guarded,
  type PeerMessage,
  type StateTable,
  type WorkerMessage,
  type WorkerReport,
  type WriteOutcome,
} from "./protocol.ts";
import {
  type CopyInit,
  joinStates,
  moved,
  openCopies,
  type OpenCopy,
  stageOpener,
} from "./stage_copies.ts";
import { UPDATE_POLICIES } from "./step.ts";
import { CommittedUpdates, LocalUpdates } from "./updates.ts";
import { takeDevice } from "./worker_home.ts";
import {
  checkArrival,
  measure,
  send,
  withoutStates,
  Worker,
  type WorkerInit,
  type WorkerState,
} from "./worker_state.ts";

/** The handlers of messages between steps. */
function controlHandlers(worker: Worker): Partial<Handlers<WorkerMessage>> {
  const { ctx, init, copies } = worker;
  return {
    Connect(peers) {
      worker.peers = peers;
      worker.state = "idle";
      send(worker, { type: "Ready", worker: init.worker });
    },
    Report() {
      const next = worker.policy?.waitsFor;
      const waitsFor = worker.steps.length === 0
        ? "the next step"
        : next
        ? formatAction(next)
        : "messages";
      const ready = worker.ready.map(formatAction);
      ctx.reply({ waitsFor, ready } satisfies WorkerReport);
    },
    async Save() {
      const parts: StageState[] = [];
      for (const { kernels } of copies.all) parts.push(await ctx.busy(() => kernels.save()));
      const state = joinStates(parts);
      send(worker, { type: "Saved", worker: init.worker, state }, moved(state));
    },
    async Digest() {
      const digests: CopyDigest[] = [];
      for (const { stage, rank, kernels } of copies.all) {
        const digest = await ctx.busy(() => digestOfStage(kernels, "state"));
        digests.push({ stage, rank, digest });
      }
      send(worker, { type: "Digested", worker: init.worker, digests });
    },
    async Fetch({ stage, parts, nth }) {
      const values = await ctx.busy(() => copyOf(worker, stage).kernels.read(parts));
      send(worker, { type: "Fetched", values, nth }, { transfer: [values.buffer] });
    },
    async Write({ order, step }) {
      const outcome = await ctx.busy(() => write(worker, order, step));
      send(worker, { type: "Written", worker: init.worker, outcome });
    },
  };
}

/** Returns a copy of a stage; all copies are equal. */
function copyOf({ copies, mirrors }: Worker, stage: number): OpenCopy {
  const copy = [...copies.all, ...mirrors].find((one) => one.stage === stage);
  if (copy) return copy;
  throw new RangeError(`Cannot read stage ${stage}: a copy of it must be held here`);
}

/** Returns the state with a `read` that throws if a number is not finite. */
export const finiteOnly = (state: HeldState, step: number): HeldState =>
  watchReads(state, (values, parts) => assertFinite(parts, values, step));

/** Writes the first copies of stages. */
async function write(
  worker: Worker,
  { stages, ...order }: ShardOrder,
  step: number,
): Promise<WriteOutcome> {
  const stageOf = (name: string) => (stages.get(name) ?? stages.get(parameterOf(name)))!;
  const held = finiteOnly({
    shapes: order.shapes,
    holderOf: stageOf,
    read: (parts) => copyOf(worker, stageOf(parts[0]!.name)).kernels.read(parts),
  }, step);
  try {
    return { shard: await writeShard(order, held) };
  } catch (error) {
    const { message } = error as Error;
    return { problem: message, isNonFinite: error instanceof NonFiniteError };
  }
}

/** Messages of every state. */
const ALWAYS = ["Report", "OnLink", "LinkDue"] as const;

/** Inputs from workers that have begun a step earlier, or of evaluations. */
const INPUTS = ["Inject", "Activation"] as const;

/** Parts of all-reduces; late parts of an aborted step are dropped. */
const PARTS = ["ReducePart", "TieGradient", "Mirror"] as const;

/** The states of a worker whose steps end with a flush. */
export const FLUSHED_WORKER: StateTable<WorkerState, WorkerMessage> = {
  connecting: [...ALWAYS, "Connect"],
  idle: [...ALWAYS, ...INPUTS, ...PARTS, "Begin", "Save", "Digest", "Fetch", "Write", "Freeze"],
  computing: [...ALWAYS, ...INPUTS, ...PARTS, "Gradient", "Dispatch", "Reduce", "Freeze"],
  reducing: [...ALWAYS, ...PARTS, "Reduce", "Commit", "Abort", "Freeze"],
  committing: [...ALWAYS, ...PARTS, "StepBucket", "Freeze"],
  frozen: ["Report", "Digest", "Fetch"],
};

/** The states of a worker that steps its weights by itself. */
export const UNFLUSHED_WORKER: StateTable<WorkerState, WorkerMessage> = {
  connecting: [...ALWAYS, "Connect"],
  idle: [...ALWAYS, ...INPUTS, "Begin", "Save", "Fetch", "Write"],
  computing: [...ALWAYS, ...INPUTS, "Gradient", "Dispatch", "Begin", "Drain"],
  committing: [...ALWAYS, ...INPUTS, "Gradient", "StepBucket", "Begin", "Drain"],
};

/** All messages to a worker. */
export const WORKER_MESSAGES: readonly WorkerMessage["type"][] = [
  ...new Set([...Object.values(FLUSHED_WORKER), ...Object.values(UNFLUSHED_WORKER)].flat()),
];

/** The handlers of a worker; each refuses its message in states that do not take it. */
function workerHandlers(worker: Worker, updater: WeightUpdater): Handlers<WorkerMessage> {
  const { link, init } = worker, { isFlushed } = UPDATE_POLICIES[init.updates];
  const inputs: Partial<Handlers<WorkerMessage>> = {
    ...inputHandlers(worker, updater),
    ...updater.handlers,
  };
  // The handlers of messages from other workers first check their arrays.
  const types = ["Activation", "Gradient", ...PARTS] as const;
  const checked = types.map((type) => {
    const handle = inputs[type] as (message: PeerMessage) => void | Promise<void>;
    return [type, (message: PeerMessage) => {
      checkArrival(worker, message);
      return handle(message);
    }] as const;
  });
  const handlers: Handlers<WorkerMessage> = guarded(
    "worker",
    isFlushed ? FLUSHED_WORKER : UNFLUSHED_WORKER,
    () => worker.state,
    WORKER_MESSAGES,
    {
      ...inputs,
      ...init.verification?.mode === "actions" && Object.fromEntries(checked),
      ...controlHandlers(worker),
      OnLink: ({ message, arrivesAt }) => void link.receive(message, arrivesAt),
      async LinkDue() {
        for (const message of link.arrived()) {
          await (handlers[message.type] as (message: PeerMessage) => void | Promise<void>)(message);
        }
      },
    },
    ["frozen"],
  );
  return handlers;
}

/** The spec of a worker, in any isolate. */
export const WORKER: ActorSpec<WorkerInit, WorkerMessage> = {
  module: import.meta.url,
  export: "pipelineWorker",
};

/** The state of a worker for tests and journals. */
export interface WorkerView {
  /** Its state. */
  readonly state: WorkerState;
  /** (stage, micro-batch) activations held. */
  readonly stash: number;
  /** Actions that are ready, and inputs of steps that have not begun. */
  readonly ready: number;
  readonly copies: readonly OpenCopy[];
}

/** Makes a worker. Handled messages: {@linkcode WorkerMessage}. */
export const pipelineWorker: ActorFactory<WorkerInit, WorkerMessage> = async (ctx, init) => {
  const worker = await openWorker(ctx, init), { isFlushed } = UPDATE_POLICIES[init.updates];
  const updater = new (isFlushed ? CommittedUpdates : LocalUpdates)(worker);
  ctx.expose((): WorkerView => ({
    state: worker.state,
    stash: worker.copies.live,
    ready: worker.ready.length + worker.early.length,
    copies: worker.copies.all,
  }));
  return workerHandlers(worker, updater);
};

async function openWorker(ctx: Context<WorkerMessage>, whole: WorkerInit): Promise<Worker> {
  const init = withoutStates(whole);
  const { isKept } = init, { device, stages, leave } = await takeDevice(init.device, isKept);
  let isFrozen = () => false;
  // The state of a frozen worker is that of all workers after the last step.
  ctx.defer(() => leave(isFrozen() ? openStages : undefined));
  const open = await stageOpener(init.kernels);
  const openAll = (copies: readonly CopyInit[]) =>
    openCopies(device, copies, init.stage, init.halves, open);
  const openStages = isKept ? stages! : {
    copies: await openAll(whole.held),
    mirrors: (await openAll(whole.mirrors ?? [])).all,
  };
  const { copies, mirrors } = openStages;
  // The former worker may have been frozen in the middle of a step.
  for (const { kernels } of isKept ? [...copies.all, ...mirrors] : []) kernels.reset();
  const worker = new Worker(ctx, init, copies, mirrors);
  isFrozen = () => worker.state === "frozen";
  measure(worker);
  return worker;
}
