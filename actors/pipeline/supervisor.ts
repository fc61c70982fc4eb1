/**
 * The supervisor: an actor that injects micro-batches, enforces `pipeline_limit`, triggers the
 * all-reduce and closes the step. Without flushes it keeps the pipe full over the ends of steps, and
 * drains it on request.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec, Context, Handlers } from "../runtime/mod.ts";
import { controlHandlers, verifyHandlers, workerDownHandlers } from "./control.ts";
import {
  guarded,
  type StateTable,
  type SupervisorMessage,
  type WorkerMessage,
} from "./protocol.ts";
import { UPDATE_POLICIES } from "./step.ts";
import { commitHandlers, drainHandlers, flowHandlers } from "./step_end.ts";
import {
  emptyFlow,
  mailboxBound,
  PendingReplies,
  type Supervisor,
  type SupervisorInit,
  type SupervisorState,
} from "./supervisor_state.ts";
import { WORKER } from "./worker.ts";
import { slicingOf, withoutStates, type WorkerInit } from "./worker_state.ts";

/** Messages of every state. */
const ALWAYS = ["Stalled", "WorkerDown"] as const;

/** Questions of the owner of the supervisor, each of which has an answer. */
const QUESTIONS: readonly SupervisorMessage["type"][] = [
  "Start",
  "RunStep",
  "Drain",
  "Evaluate",
  "Save",
  "Compare",
  "Exclude",
  "Fetch",
  "Write",
];

/** Messages of workers about micro-batches. */
const FLOW = ["Loss", "Credit"] as const;

/** The states of a supervisor whose steps end with a flush. */
export const FLUSHED_SUPERVISOR: StateTable<SupervisorState, SupervisorMessage> = {
  starting: [...ALWAYS, "Start", "Ready"],
  idle: [...ALWAYS, "RunStep", "Evaluate", "Save", "Compare", "Exclude", "Fetch", "Write"],
  stepping: [...ALWAYS, ...FLOW, "GradientsReady", "Reduced"],
  deciding: [...ALWAYS, "Reduced"],
  ending: [...ALWAYS, "Reduced", "StepDone"],
  draining: [],
  evaluating: [...ALWAYS, "Loss"],
  saving: [...ALWAYS, "Saved", "Digested", "Fetched", "Written"],
  freezing: [...ALWAYS, "Frozen"],
  frozen: [...ALWAYS, "Compare", "Digested", "Fetch", "Fetched"],
  lost: [],
};

/** The states of a supervisor whose workers step their weights by themselves. */
export const UNFLUSHED_SUPERVISOR: StateTable<SupervisorState, SupervisorMessage> = {
  starting: [...ALWAYS, "Start", "Ready"],
  idle: [...ALWAYS, "RunStep", "Drain", "Evaluate", "Save", "Fetch", "Write"],
  stepping: [...ALWAYS, ...FLOW, "RunStep", "StepDone", "Drain"],
  deciding: [],
  ending: [],
  draining: [...ALWAYS, ...FLOW, "StepDone", "Drained"],
  evaluating: [...ALWAYS, "Loss"],
  saving: [...ALWAYS, "Saved", "Fetched", "Written"],
  freezing: [],
  frozen: [],
  lost: [],
};

/** All messages to the supervisor. */
export const SUPERVISOR_MESSAGES: readonly SupervisorMessage["type"][] = [
  ...new Set([...Object.values(FLUSHED_SUPERVISOR), ...Object.values(UNFLUSHED_SUPERVISOR)].flat()),
];

/** The handlers of a supervisor; each refuses its message in states that do not take it. */
function supervisorHandlers(supervisor: Supervisor): Handlers<SupervisorMessage> {
  const { isFlushed } = UPDATE_POLICIES[supervisor.init.updates];
  const handlers = guarded<SupervisorMessage, SupervisorState>(
    "supervisor",
    isFlushed ? FLUSHED_SUPERVISOR : UNFLUSHED_SUPERVISOR,
    () => supervisor.state,
    SUPERVISOR_MESSAGES,
    {
      ...controlHandlers(supervisor),
      ...verifyHandlers(supervisor),
      ...flowHandlers(supervisor),
      ...(isFlushed ? commitHandlers : drainHandlers)(supervisor),
      ...workerDownHandlers(supervisor),
    },
  );
  return unlessLost(supervisor, handlers);
}

/**
 * Wraps handlers: after the loss of a worker, questions get it as answer, and other messages are
 * dropped, except messages that freeze the survivors and read their state.
 */
function unlessLost(
  supervisor: Supervisor,
  handlers: Handlers<SupervisorMessage>,
): Handlers<SupervisorMessage> {
  const entries = SUPERVISOR_MESSAGES.map((type) => {
    const handle = handlers[type] as (message: SupervisorMessage) => void | Promise<void>;
    return [type, (message: SupervisorMessage) => {
      const { state } = supervisor, isOver = ["lost", "freezing", "frozen"].includes(state);
      if (!isOver || FLUSHED_SUPERVISOR[state].includes(type)) return handle(message);
      if (QUESTIONS.includes(type)) supervisor.replies.defer();
    }];
  });
  return Object.fromEntries(entries) as Handlers<SupervisorMessage>;
}

/** The spec of the supervisor. */
export const SUPERVISOR: ActorSpec<SupervisorInit, SupervisorMessage> = {
  module: import.meta.url,
  export: "pipelineSupervisor",
};

/** The state of the supervisor for tests and journals. */
export interface SupervisorView {
  /** Its state. */
  readonly state: SupervisorState;
  /** The number of requested steps. */
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
  // Initial weights are not needed any more.
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
  return {
    ctx,
    init,
    workers,
    replies: new PendingReplies(ctx),
    held: { peakActivations: zeros(), weights: zeros(), memory: [] },
    gone: new Set(),
    state: "starting",
    pause: "the start",
    round: 0,
    fetches: 0,
    steps: [],
    flow: emptyFlow(init),
  };
}
