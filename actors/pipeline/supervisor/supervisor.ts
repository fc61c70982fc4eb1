/**
 * The supervisor: an actor that injects micro-batches, enforces `pipeline_limit`, triggers the
 * all-reduce and closes the step. Without flushes it keeps the pipe full over the ends of steps, and
 * lets it run empty when asked to.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec, Context, Handlers } from "../../runtime/mod.ts";
import { mailboxBound } from "../mailbox_bound.ts";
import type { SupervisorMessage, WorkerMessage } from "../protocol.ts";
import { WORKER } from "../worker/worker.ts";
import { slicingOf, withoutStates, type WorkerInit } from "../worker/worker_init.ts";
import { openEvaluations } from "./evaluation.ts";
import { openOwedReplies } from "./owed_replies.ts";
import type { SupervisorInit } from "./supervisor_init.ts";
import { supervisorHandlers } from "./supervisor_messages.ts";
import { emptyFlow, entryOf, type Supervisor } from "./supervisor_record.ts";
import type { SupervisorState } from "./supervisor_states.ts";

/** How the supervisor is made. */
export const SUPERVISOR: ActorSpec<SupervisorInit, SupervisorMessage> = {
  module: import.meta.url,
  export: "pipelineSupervisor",
};

/** What the supervisor lets tests and journals see of its state. */
export interface SupervisorView {
  /** What it is at. */
  readonly state: SupervisorState;
  /** Steps asked for. */
  readonly round: number;
  readonly isInStep: boolean;
  /** Micro-batches that have entered since the pipe was empty, by data-parallel replica. */
  readonly injected: readonly number[];
  readonly isCommitted: boolean;
}

/** Makes the supervisor and its workers. Handled messages: {@linkcode SupervisorMessage}. */
export const pipelineSupervisor: ActorFactory<SupervisorInit, SupervisorMessage> = (
  ctx,
  init,
): Handlers<SupervisorMessage> => {
  const workers = spawnWorkers(ctx, init);
  // Of first weights nobody keeps a copy.
  const kept = { ...init, workers: init.workers.map(withoutStates) };
  const supervisor = openSupervisor(ctx, workers, kept);
  ctx.expose((): SupervisorView => ({
    state: supervisor.state,
    round: supervisor.round,
    isInStep: supervisor.steps.length > 0,
    injected: supervisor.flow.injected,
    isCommitted: supervisor.steps[0]?.isCommitted ?? false,
  }));
  return supervisorHandlers(supervisor);
};

function spawnWorkers(
  ctx: Context<SupervisorMessage>,
  init: SupervisorInit,
): ActorRef<WorkerMessage>[] {
  const made = init.worker ?? WORKER;
  return init.workers.map((worker) =>
    ctx.spawn<WorkerInit, WorkerMessage>(made, worker, {
      id: `worker-${worker.worker}`,
      isolate: init.isolate,
      ...init.heapLimitMb && { memoryLimitMb: init.heapLimitMb },
      capacity: mailboxBound({ ...worker, slicing: slicingOf(worker) }, init),
    })
  );
}

function openSupervisor(
  ctx: Context<SupervisorMessage>,
  workers: readonly ActorRef<WorkerMessage>[],
  init: SupervisorInit,
): Supervisor {
  for (const worker of workers) ctx.watch(worker, (down) => ({ type: "WorkerDown", down }));
  const zeros = () => workers.map(() => 0);
  const supervisor: Supervisor = {
    ctx,
    init,
    workers,
    replies: openOwedReplies(ctx),
    evaluations: openEvaluations(init.injectionLimit, (microBatch, fields) => {
      const message = { type: "Inject", microBatch, fields, isEvaluation: true } as const;
      ctx.send(entryOf(supervisor, 0, 0), message);
    }),
    held: { peakActivations: zeros(), weights: zeros(), memory: [] },
    state: "starting",
    pause: "the start",
    round: 0,
    steps: [],
    flow: emptyFlow(init),
    takeReady: () => {},
    takeState: () => {},
    takeFetched: () => {},
    takeWritten: () => {},
    drained: () => {},
  };
  return supervisor;
}
