/**
 * The supervisor: an actor that injects micro-batches, enforces `pipeline_limit`, triggers the
 * all-reduce and closes the step. Without flushes it keeps the pipe full over the ends of steps, and
 * lets it run empty when asked to.
 *
 * @module
 */

import { areFinite } from "../../commit/non_finite.ts";
import type { ActorFactory, ActorRef, ActorSpec, Context, Handlers } from "../../runtime/mod.ts";
import { mailboxBound } from "../mailbox_bound.ts";
import { guarded } from "../message_guard.ts";
import type { SupervisorMessage, WorkerMessage } from "../protocol.ts";
import { joinStates, moved } from "../stage_states.ts";
import { UPDATE_POLICIES } from "../update_policy.ts";
import { WORKER } from "../worker/worker.ts";
import { openEvaluations } from "./evaluation.ts";
import { gather } from "./gather.ts";
import { openOwedReplies } from "./owed_replies.ts";
import { reportStall } from "./stall_report.ts";
import { allLosses, endFor, openStepRecord, outcomeOf, type StepRecord } from "./step_record.ts";
import type { SupervisorInit } from "./supervisor_init.ts";
import {
  credit,
  emptyFlow,
  entryOf,
  inject,
  stepOfRound,
  type Supervisor,
  tellAll,
  underWay,
} from "./supervisor_record.ts";
import {
  FLUSHED_SUPERVISOR,
  QUESTIONS,
  SUPERVISOR_MESSAGES,
  type SupervisorState,
  UNFLUSHED_SUPERVISOR,
} from "./supervisor_states.ts";

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
export const pipelineSupervisor: ActorFactory<SupervisorInit, SupervisorMessage> = (ctx, init) => {
  const supervisor = openSupervisor(ctx, init), { isFlushed } = UPDATE_POLICIES[init.updates];
  ctx.expose((): SupervisorView => ({
    state: supervisor.state,
    round: supervisor.round,
    isInStep: supervisor.steps.length > 0,
    injected: supervisor.flow.injected,
    isCommitted: supervisor.steps[0]?.isCommitted ?? false,
  }));
  const handlers = guarded<SupervisorMessage, SupervisorState>(
    "supervisor",
    isFlushed ? FLUSHED_SUPERVISOR : UNFLUSHED_SUPERVISOR,
    () => supervisor.state,
    SUPERVISOR_MESSAGES,
    {
      ...pauseHandlers(supervisor),
      ...flowHandlers(supervisor),
      ...(isFlushed ? commitHandlers : drainHandlers)(supervisor),
      ...lossHandlers(supervisor),
    },
  );
  return unlessLost(supervisor, handlers);
};

function openSupervisor(ctx: Context<SupervisorMessage>, init: SupervisorInit): Supervisor {
  const workers: ActorRef<WorkerMessage>[] = init.workers.map((worker) =>
    ctx.spawn(WORKER, worker, {
      id: `worker-${worker.worker}`,
      isolate: init.isolate,
      ...init.heapLimitMb && { memoryLimitMb: init.heapLimitMb },
      capacity: mailboxBound(worker, init),
    })
  );
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
    drained: () => {},
  };
  return supervisor;
}

type Some = Partial<Handlers<SupervisorMessage>>;

/** What is asked while the pipe is empty. */
function pauseHandlers(supervisor: Supervisor): Some {
  const { ctx, init, workers, replies, evaluations } = supervisor;
  const goIdle = () => void (supervisor.state = "idle");
  return {
    Start() {
      const reply = replies.owe();
      supervisor.takeReady = gather([...workers.keys()], () => {
        goIdle();
        reply(undefined);
      });
      tellAll(supervisor, { type: "Connect", supervisor: ctx.self, workers });
    },
    Ready: ({ worker }) => supervisor.takeReady(worker, undefined),
    Evaluate({ microBatches }) {
      const reply = replies.owe();
      supervisor.state = "evaluating";
      supervisor.pause = "an evaluation";
      evaluations.begin(microBatches, (losses) => {
        goIdle();
        reply(losses);
      });
    },
    Save() {
      const reply = replies.owe();
      supervisor.state = "saving";
      supervisor.pause = "a save";
      // Copies of a stage are equal: the first of each has it all.
      const { copies } = init.workers[0]!;
      const first = [...new Set(copies.map(([copy]) => copy!.worker))].sort((a, b) => a - b);
      supervisor.takeState = gather(first, (parts) => {
        const state = joinStates(parts);
        goIdle();
        reply(state, moved(state));
      });
      for (const worker of first) ctx.send(workers[worker]!, { type: "Save" }, { lane: "control" });
    },
    Saved: ({ worker, state }) => supervisor.takeState(worker, state),
  };
}

/** What gets micro-batches through. */
function flowHandlers(supervisor: Supervisor): Some {
  const { init, replies, evaluations } = supervisor;
  return {
    RunStep({ request, plan }) {
      const { flow: { known } } = supervisor, first = [...known], reply = replies.owe();
      const asked = { round: ++supervisor.round, request, plan, reply, first };
      supervisor.steps.push(openStepRecord(init, asked));
      supervisor.state = "stepping";
      for (const [replica, { pipeOf }] of plan.shares.entries()) known[replica]! += pipeOf.length;
      for (const replica of plan.shares.keys()) inject(supervisor, replica);
    },
    Loss({ round, microBatch, losses }) {
      if (supervisor.state === "evaluating") return evaluations.add(microBatch, losses);
      stepOfRound(supervisor, round).losses[microBatch] = losses;
    },
    Credit: ({ replica }) => credit(supervisor, replica),
  };
}

/** How steps end with a flush. */
function commitHandlers(supervisor: Supervisor): Some {
  const { init } = supervisor, running = () => supervisor.steps[0]!;
  const reduce = ({ decision }: StepRecord) => {
    const stages = decision!.startReducing();
    if (stages.length > 0) tellAll(supervisor, { type: "Reduce", stages });
  };
  /** Commits or aborts when all that this depends on is known. */
  const decide = (step: StepRecord) => {
    const { request: { lossScale, update, learningRate }, decision } = step;
    const verdict = decision!.verdict(areFinite(allLosses(step), []), lossScale);
    supervisor.state = verdict ? "ending" : "deciding";
    if (verdict?.isCommitted === false) return tellAll(supervisor, { type: "Abort" });
    reduce(step);
    if (!verdict) return;
    step.isCommitted = true;
    const { gradientScale } = verdict;
    tellAll(supervisor, { type: "Commit", update, learningRate, gradientScale });
  };
  return {
    GradientsReady({ stage, isSafe }) {
      const step = running();
      step.decision!.vote(stage, isSafe);
      if (step.decision!.hasAllVotes) decide(step);
      else reduce(step);
    },
    Reduced({ squares }) {
      const step = running();
      step.decision!.addSquares(squares);
      if (supervisor.state === "deciding") decide(step);
    },
    StepDone(message) {
      const step = stepOfRound(supervisor, message.round);
      if (!endFor(step, supervisor.held, message)) return;
      supervisor.steps = [];
      supervisor.flow = emptyFlow(init);
      supervisor.state = "idle";
      step.reply(outcomeOf(step, supervisor.held));
    },
  };
}

/** How steps end without flushes, one after the other, and how the pipe runs empty. */
function drainHandlers(supervisor: Supervisor): Some {
  const { init, workers, replies } = supervisor;
  let isTold = false;
  /** Once the last step has begun, all are told that no more come. */
  const drainWhenBegun = () => {
    const { state, steps } = supervisor;
    if (isTold || state !== "draining" || steps.some(({ hasBegun }) => !hasBegun)) return;
    isTold = true;
    tellAll(supervisor, { type: "Drain" });
  };
  return {
    Credit({ replica }) {
      credit(supervisor, replica);
      drainWhenBegun();
    },
    StepDone(message) {
      const step = stepOfRound(supervisor, message.round);
      if (!endFor(step, supervisor.held, message)) return;
      supervisor.steps = supervisor.steps.filter((one) => one !== step);
      step.reply(outcomeOf(step, supervisor.held));
    },
    Drain() {
      const reply = replies.owe();
      if (supervisor.state === "idle") return reply(undefined);
      let missing = workers.length;
      supervisor.drained = () => {
        if (--missing > 0) return;
        supervisor.flow = emptyFlow(init);
        supervisor.state = "idle";
        reply(undefined);
      };
      isTold = false;
      supervisor.state = "draining";
      supervisor.pause = "a drain";
      drainWhenBegun();
    },
    Drained: () => supervisor.drained(),
  };
}

/** What tells that a worker is gone. */
function lossHandlers(supervisor: Supervisor): Some {
  const { ctx, workers, replies } = supervisor;
  return {
    async Stalled({ forMs }) {
      const lost = await reportStall(ctx, workers, underWay(supervisor), forMs);
      supervisor.state = "lost";
      replies.giveUp(lost);
    },
    WorkerDown({ down }) {
      const { steps } = supervisor;
      supervisor.state = "lost";
      replies.lose(down, steps.length > 0 ? underWay(supervisor) : undefined);
    },
  };
}

/** Once a worker is gone, questions are answered with that, and all else is dropped. */
function unlessLost(
  supervisor: Supervisor,
  handlers: Handlers<SupervisorMessage>,
): Handlers<SupervisorMessage> {
  const entries = SUPERVISOR_MESSAGES.map((type) => {
    const handle = handlers[type] as (message: SupervisorMessage) => void | Promise<void>;
    return [type, (message: SupervisorMessage) => {
      if (supervisor.state !== "lost") return handle(message);
      if (QUESTIONS.includes(type)) supervisor.replies.owe();
    }];
  });
  return Object.fromEntries(entries) as Handlers<SupervisorMessage>;
}
