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
 * @module
 */

import { openDevice } from "../../../kernels/mod.ts";
import type { ActorFactory, ActorSpec, Context } from "../../runtime/mod.ts";
import { openEmulatedLink } from "../links/emulated_link.ts";
import type { PeerMessage, WorkerMessage } from "../protocol.ts";
import { openCopies, type OpenCopy } from "../stage_copies.ts";
import { UPDATE_POLICIES } from "../update_policy.ts";
import { openActivity } from "./activity.ts";
import { openArrivals } from "./arrivals.ts";
import { openCommittedUpdates } from "./committed_updates.ts";
import { openLocalUpdates } from "./local_updates.ts";
import { withoutStates, type WorkerInit } from "./worker_init.ts";
import { workerHandlers } from "./worker_messages.ts";
import { measure, type Worker } from "./worker_record.ts";
import type { WorkerState } from "./worker_states.ts";

/** How a worker is made in any isolate. */
export const WORKER: ActorSpec<WorkerInit, WorkerMessage> = {
  module: import.meta.url,
  export: "pipelineWorker",
};

/** What a worker lets tests and journals see of its state. */
export interface WorkerView {
  /** What it is at. */
  readonly state: WorkerState;
  /** (stage, micro-batch) activations held. */
  readonly stash: number;
  /** Actions whose inputs have arrived. */
  readonly ready: number;
  readonly copies: readonly OpenCopy[];
}

/** Makes a worker. Handled messages: {@linkcode WorkerMessage}. */
export const pipelineWorker: ActorFactory<WorkerInit, WorkerMessage> = async (ctx, init) => {
  const worker = await openWorker(ctx, init), { isFlushed } = UPDATE_POLICIES[init.updates];
  const updater = (isFlushed ? openCommittedUpdates : openLocalUpdates)(worker);
  ctx.expose((): WorkerView => ({
    state: worker.state,
    stash: worker.copies.live,
    ready: worker.arrivals.ready.length,
    copies: worker.copies.all,
  }));
  return workerHandlers(worker, updater);
};

async function openWorker(ctx: Context<WorkerMessage>, whole: WorkerInit): Promise<Worker> {
  const init = withoutStates(whole);
  // In an isolate of its own the worker has nothing to do while a kernel computes.
  const isBlocking = ctx.self.isolate !== 0;
  const device = init.isRehearsed
    ? undefined
    : await openDevice(init.device.name, { ...init.device, isBlocking });
  ctx.defer(() => device?.close());
  const worker: Worker = {
    ctx,
    init,
    copies: await openCopies(device, whole.held, init.stage, init.halves),
    arrivals: openArrivals(),
    link: openEmulatedLink<PeerMessage>(ctx, init.link),
    activity: openActivity(ctx, init),
    state: "connecting",
    peers: undefined,
    steps: [],
    policy: undefined,
    recomputations: new Set(),
    isDispatching: false,
    peak: { activations: 0, weights: 0 },
  };
  measure(worker);
  return worker;
}
