/**
 * The supervisor: an actor that injects micro-batches, enforces `pipeline_limit`, triggers the
 * all-reduce and closes the step. Without flushes it keeps the pipe full over the ends of steps, and
 * drains it on request.
 *
 * @module
 */

import type { Batch } from "../../kernels/mod.ts";
import { joinStates, moved } from "./stage_copies.ts";
import { areFinite, jobScales, unequalCopies } from "../gradients/commit.ts";
import type { ActorFactory, ActorSpec, Handlers, Reply } from "../runtime/mod.ts";
import {
  guarded,
  type StateTable,
  type SupervisorMessage,
  type WorkerLost,
  type WorkerMessage,
  type WorkerReport,
} from "./protocol.ts";
import { UPDATE_POLICIES } from "./step.ts";
import {
  allLosses,
  broadcast,
  credit,
  currentActivity,
  emptyFlow,
  endFor,
  entryOf,
  Evaluation,
  gather,
  holderOf,
  inject,
  lossOf,
  mailboxBound,
  openStepRecord,
  outcomeOf,
  stepOfRound,
  type StepRecord,
  Supervisor,
  type SupervisorInit,
  type SupervisorState,
} from "./supervisor_state.ts";
import { WORKER } from "./worker.ts";
import { reducesAlone, withoutStates, type WorkerInit } from "./worker_state.ts";

/** Messages of every state. */
const ALWAYS = ["Stalled", "WorkerDown"] as const;

/** Questions of the owner of the supervisor between two steps. */
const BETWEEN = ["RunStep", "Evaluate", "Save", "Compare", "Exclude", "Fetch", "Write"] as const;

/** All questions of the owner, each of which has an answer. */
const QUESTIONS: readonly SupervisorMessage["type"][] = ["Start", "Drain", ...BETWEEN];

/** Messages of workers about micro-batches. */
const FLOW = ["Loss", "Credit"] as const;

/** The states of a supervisor whose steps end with a flush. */
export const FLUSHED_SUPERVISOR: StateTable<SupervisorState, SupervisorMessage> = {
  starting: [...ALWAYS, "Start", "Ready"],
  idle: [...ALWAYS, ...BETWEEN],
  stepping: [...ALWAYS, ...FLOW, "GradientsReady", "Reduced"],
  deciding: [...ALWAYS, "Reduced"],
  ending: [...ALWAYS, "Reduced", "StepDone"],
  evaluating: [...ALWAYS, "Loss"],
  saving: [...ALWAYS, "Saved", "Digested", "Fetched", "Written"],
  freezing: [...ALWAYS, "Frozen"],
  frozen: [...ALWAYS, "Compare", "Digested", "Fetch", "Fetched"],
};

/** The states of a supervisor whose workers step their weights by themselves. */
export const UNFLUSHED_SUPERVISOR: StateTable<SupervisorState, SupervisorMessage> = {
  starting: [...ALWAYS, "Start", "Ready"],
  idle: [...ALWAYS, "RunStep", "Drain", "Evaluate", "Save", "Fetch", "Write"],
  stepping: [...ALWAYS, ...FLOW, "RunStep", "StepDone", "Drain"],
  draining: [...ALWAYS, ...FLOW, "StepDone", "Drained"],
  evaluating: [...ALWAYS, "Loss"],
  saving: [...ALWAYS, "Saved", "Fetched", "Written"],
};

/** All messages to the supervisor. */
export const SUPERVISOR_MESSAGES: readonly SupervisorMessage["type"][] = [
  ...new Set([...Object.values(FLUSHED_SUPERVISOR), ...Object.values(UNFLUSHED_SUPERVISOR)].flat()),
];

/** The handlers of a supervisor; each refuses its message in states that do not take it. */
function supervisorHandlers(supervisor: Supervisor): Handlers<SupervisorMessage> {
  const { isFlushed } = UPDATE_POLICIES[supervisor.init.updates];
  return guarded<SupervisorMessage, SupervisorState>(
    "supervisor",
    isFlushed ? FLUSHED_SUPERVISOR : UNFLUSHED_SUPERVISOR,
    () => supervisor.state,
    SUPERVISOR_MESSAGES,
    {
      ...controlHandlers(supervisor),
      ...flowHandlers(supervisor),
      ...(isFlushed ? commitHandlers : drainHandlers)(supervisor),
      ...workerDownHandlers(supervisor),
    },
    // After the loss of a worker, questions get it as answer, and other messages are dropped, except
    // messages that freeze the survivors and read their state.
    ["lost", "freezing", "frozen"],
    (type) => {
      if (QUESTIONS.includes(type)) supervisor.replies.defer();
    },
  );
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
  const workers = init.spawned ??
    init.workers.map((worker) =>
      ctx.spawn<WorkerInit, WorkerMessage>(init.worker ?? WORKER, worker, {
        id: `worker-${worker.worker}`,
        isolate: init.isolate,
        ...init.heapLimitMb && { memoryLimitMb: init.heapLimitMb },
        capacity: mailboxBound(worker, init),
      })
    );
  // Initial weights are not needed any more.
  const kept = { ...init, workers: init.workers.map(withoutStates) };
  const supervisor = new Supervisor(ctx, kept, workers);
  for (const worker of workers) ctx.watch(worker, (down) => ({ type: "WorkerDown", down }));
  ctx.expose((): SupervisorView => ({
    state: supervisor.state,
    round: supervisor.round,
    isInStep: supervisor.steps.length > 0,
    injected: supervisor.flow.injected,
    isCommitted: supervisor.steps[0]?.isCommitted ?? false,
  }));
  return supervisorHandlers(supervisor);
};

/** The handlers of the end of steps with a flush. */
function commitHandlers(supervisor: Supervisor): Partial<Handlers<SupervisorMessage>> {
  const { init } = supervisor, running = () => supervisor.steps[0]!;
  const isAlone = reducesAlone(init.workers[0]!);
  const reduce = ({ decision }: StepRecord) => {
    if (isAlone) return;
    const stages = decision!.startReducing();
    if (stages.length > 0) broadcast(supervisor, { type: "Reduce", stages });
  };
  /** Commits or aborts, once the decision is known. */
  const decide = (step: StepRecord) => {
    const { request: { lossScale, update, learningRate, jobs }, decision } = step;
    const losses = allLosses(step);
    const outcome = decision!.decide(jobs !== undefined || areFinite(losses, []), lossScale);
    supervisor.state = outcome ? "ending" : "deciding";
    const isWrong = step.doubts.length > 0 || unequalCopies(step.digests).length > 0;
    if (outcome && (!outcome.isCommitted || isWrong)) {
      return broadcast(supervisor, { type: "Abort" });
    }
    reduce(step);
    if (!outcome) return;
    step.isCommitted = true;
    const { gradientScale } = outcome, { clip } = init;
    const scales = jobs && jobScales(jobs, losses, decision!.squares, clip);
    const commit = { update, learningRate, gradientScale, ...scales && { jobs: scales } };
    broadcast(supervisor, { type: "Commit", ...commit });
  };
  return {
    GradientsReady({ stage, isSafe, doubts = [] }) {
      const step = running();
      step.doubts.push(...doubts);
      step.decision!.vote(stage, isSafe);
      if (step.decision!.hasAllVotes) decide(step);
      else reduce(step);
    },
    Reduced({ squares, digests = [], doubts = [] }) {
      const step = running();
      step.digests.push(...digests);
      step.doubts.push(...doubts);
      step.decision!.addSquares(squares);
      if (supervisor.state === "deciding") decide(step);
    },
  };
}

/** The handlers of the end of steps without flushes, and of the drain of the pipe. */
function drainHandlers(supervisor: Supervisor): Partial<Handlers<SupervisorMessage>> {
  const { init, workers, replies } = supervisor;
  let isSent = false;
  /** Sends Drain to all workers once the last step has begun. */
  const drainWhenBegun = () => {
    const { state, steps } = supervisor;
    if (isSent || state !== "draining" || steps.some(({ hasBegun }) => !hasBegun)) return;
    isSent = true;
    broadcast(supervisor, { type: "Drain" });
  };
  return {
    Credit({ replica }) {
      credit(supervisor, replica);
      drainWhenBegun();
    },
    Drain() {
      const reply = replies.defer();
      if (supervisor.state === "idle") return reply(undefined);
      let missing = workers.length;
      supervisor.drained = () => {
        if (--missing > 0) return;
        supervisor.flow = emptyFlow(init);
        supervisor.state = "idle";
        reply(undefined);
      };
      isSent = false;
      supervisor.state = "draining";
      supervisor.pause = "a drain";
      drainWhenBegun();
    },
    Drained: () => supervisor.drained!(),
  };
}

/** The handlers of micro-batches in the pipe. */
export function flowHandlers(supervisor: Supervisor): Partial<Handlers<SupervisorMessage>> {
  const { init, replies } = supervisor;
  return {
    RunStep({ request, plan }) {
      const { flow: { known } } = supervisor, first = [...known], reply = replies.defer();
      const asked = { round: ++supervisor.round, request, plan, reply, first };
      supervisor.steps.push(openStepRecord(init, asked));
      supervisor.state = "stepping";
      for (const [replica, { pipeOf }] of plan.shares.entries()) known[replica]! += pipeOf.length;
      for (const replica of plan.shares.keys()) inject(supervisor, replica);
    },
    Loss({ round, microBatch, part, losses }) {
      if (supervisor.state === "evaluating") return supervisor.evaluation!.add(microBatch, losses);
      const { losses: known } = stepOfRound(supervisor, round);
      // Those of a slice follow those of the slices before.
      known[microBatch] = part?.index ? Float32Array.of(...known[microBatch]!, ...losses) : losses;
    },
    Credit: ({ replica }) => credit(supervisor, replica),
    StepDone(message) {
      const step = stepOfRound(supervisor, message.round);
      if (!endFor(step, supervisor.held, message)) return;
      supervisor.steps = supervisor.steps.filter((one) => one !== step);
      if (step.decision) {
        supervisor.flow = emptyFlow(init);
        supervisor.state = "idle";
      }
      step.reply(outcomeOf(step, supervisor.held));
    },
  };
}

/** The lane of orders to workers. */
const CONTROL = { lane: "control" } as const;

/** The longest time for an answer in the control lane, in milliseconds. */
const REPORT_TIMEOUT_MS = 1000;

/**
 * Asks every worker for the input that it waits for.
 *
 * @param stallMs The time without progress.
 */
async function reportStall(supervisor: Supervisor, stallMs: number): Promise<WorkerLost> {
  const { ctx, workers } = supervisor, when = currentActivity(supervisor);
  const options = { ...CONTROL, timeoutMs: Math.min(REPORT_TIMEOUT_MS, stallMs) };
  const reports = await Promise.all(
    workers.map((worker) =>
      ctx.ask<WorkerMessage, WorkerReport>(worker, { type: "Report" }, options)
        .catch(() => undefined)
    ),
  );
  const lines = reports.map((report, w) =>
    !report
      ? `${workers[w]!.id} does not answer`
      : `${workers[w]!.id} waits for ${report.waitsFor}, with [${report.ready}] ready`
  );
  const wedged = reports.findIndex((report) => !report), isWedged = wedged >= 0;
  const message = `${when} stalled for ${stallMs} ms: ${lines.join("; ")}`;
  return { worker: workers[Math.max(0, wedged)]!.id, kind: "exit", message, isWedged };
}

/** The handlers of lost workers. */
function workerDownHandlers(supervisor: Supervisor): Partial<Handlers<SupervisorMessage>> {
  const { workers, replies } = supervisor;
  return {
    async Stalled({ forMs }) {
      const lost = await reportStall(supervisor, forMs);
      supervisor.state = "lost";
      replies.failAll(lost);
    },
    WorkerDown({ down }) {
      const { steps, state, gone } = supervisor;
      const when = steps.length > 0 ? currentActivity(supervisor) : undefined;
      const lost = lossOf(down, when, supervisor.excluded);
      gone.add(workers.findIndex(({ id }) => id === down.ref.id));
      if (lost.kind === "exit" && canFreeze(supervisor)) {
        if (state === "frozen") return loseFrozen(supervisor, lost);
        if (state !== "freezing") return freeze(supervisor, lost);
        return supervisor.takeFrozen!(-1);
      }
      supervisor.state = "lost";
      replies.failAll(lost);
    },
    Frozen: ({ worker }) => supervisor.takeFrozen!(worker),
  };
}

/** Returns whether the survivors of a lost worker hold every stage and can be frozen. */
function canFreeze(supervisor: Supervisor): boolean {
  const { init, state } = supervisor;
  if (!init.freezes || state === "starting") return false;
  return init.workers[0]!.copies.every((_, s) => holderOf(supervisor, s) !== undefined);
}

/**
 * Freezes the survivors, then answers all questions with the loss. If the step was committed, each of
 * them has ended it, so its outcome is known.
 */
function freeze(supervisor: Supervisor, lost: WorkerLost): void {
  const { ctx, workers, gone, replies, held } = supervisor, frozen = new Set<number>();
  supervisor.state = "freezing";
  // Answers to earlier questions may come after the loss of their workers.
  supervisor.takeFetched = supervisor.takeDigests = () => {};
  supervisor.takeFrozen = (worker) => {
    frozen.add(worker);
    if (workers.some((_, w) => !gone.has(w) && !frozen.has(w))) return;
    supervisor.state = "frozen";
    const step = supervisor.steps.find(({ isCommitted }) => isCommitted);
    const remains = {
      workers: workers.length - gone.size,
      ...step && { committed: outcomeOf(step, held) },
    };
    replies.failAll({ ...lost, remains, isInStep: supervisor.steps.length > 0 });
  };
  for (const [w, worker] of workers.entries()) {
    if (!gone.has(w)) ctx.send(worker, { type: "Freeze" }, CONTROL);
  }
}

/** Answers a question to frozen workers of which one is lost; the others still hold every stage. */
function loseFrozen({ workers, gone, steps, replies }: Supervisor, lost: WorkerLost): void {
  const isInStep = steps.some(({ isCommitted }) => !isCommitted);
  replies.failAll({ ...lost, remains: { workers: workers.length - gone.size }, isInStep });
}

/**
 * Begins the answer to a question for an empty pipe, after which the supervisor is idle again. A frozen
 * one stays so, and a loss does not answer its question.
 *
 * @param state its state until then.
 */
function beginPause(
  supervisor: Supervisor,
  pause: string,
  state: SupervisorState = "saving",
): Reply {
  const isFrozen = supervisor.state === "frozen", reply = supervisor.replies.defer(isFrozen);
  if (!isFrozen) supervisor.state = state;
  supervisor.pause = pause;
  return (value, options) => {
    if (!isFrozen) supervisor.state = "idle";
    reply(value, options);
  };
}

/** The handlers of questions while the pipe is empty. */
function controlHandlers(supervisor: Supervisor): Partial<Handlers<SupervisorMessage>> {
  const { ctx, init, workers } = supervisor;
  return {
    Start() {
      const reply = beginPause(supervisor, "the start", "starting");
      supervisor.takeReady = gather([...workers.keys()], () => reply(undefined));
      broadcast(supervisor, { type: "Connect", supervisor: ctx.self, workers });
    },
    Ready: ({ worker }) => supervisor.takeReady!(worker, undefined),
    // They enter the first pipeline of the first replica.
    Evaluate({ microBatches }) {
      const reply = beginPause(supervisor, "an evaluation", "evaluating");
      const inject = (microBatch: number, fields: Batch) => {
        const message = { type: "Inject", microBatch, fields, isEvaluation: true } as const;
        ctx.send(entryOf(supervisor, 0, 0), message);
      };
      supervisor.evaluation = new Evaluation(microBatches, init.injectionLimit, inject, reply);
    },
    Save() {
      const reply = beginPause(supervisor, "a save");
      // Copies of a stage are equal: the first one is enough.
      const { copies } = init.workers[0]!;
      const first = [...new Set(copies.map(([copy]) => copy!.worker))].sort((a, b) => a - b);
      supervisor.takeState = gather(first, (parts) => {
        const state = joinStates(parts);
        reply(state, moved(state));
      });
      for (const worker of first) ctx.send(workers[worker]!, { type: "Save" }, CONTROL);
    },
    Saved: ({ worker, state }) => supervisor.takeState!(worker, state),
    Fetch(message) {
      const reply = beginPause(supervisor, "a save"), nth = ++supervisor.fetches;
      supervisor.takeFetched = (values, answered) => {
        if (answered === nth) reply(values, { transfer: [values.buffer] });
      };
      ctx.send(workers[holderOf(supervisor, message.stage)!]!, { ...message, nth }, CONTROL);
    },
    Fetched: ({ values, nth }) => supervisor.takeFetched!(values, nth),
    Write({ orders, step }) {
      const reply = beginPause(supervisor, "a checkpoint");
      supervisor.takeWritten = gather(orders.map(({ worker }) => worker), reply);
      for (const { worker, order } of orders) {
        ctx.send(workers[worker]!, { type: "Write", order, step }, CONTROL);
      }
    },
    Written: ({ worker, outcome }) => supervisor.takeWritten!(worker, outcome),
    Compare() {
      const reply = beginPause(supervisor, "a comparison");
      const alive = [...workers.keys()].filter((worker) => !supervisor.gone.has(worker));
      supervisor.takeDigests = gather(alive, (digests) => reply(digests.flat()));
      for (const worker of alive) ctx.send(workers[worker]!, { type: "Digest" }, CONTROL);
    },
    Digested: ({ worker, digests }) => supervisor.takeDigests!(worker, digests),
    Exclude({ worker, why }) {
      supervisor.replies.defer();
      supervisor.excluded = why;
      ctx.stop(workers[worker]!);
    },
  };
}
