/**
 * The handlers of the supervisor during steps: their beginning, losses, credits, and their end.
 *
 * @module
 */

import { areFinite, jobScales } from "../gradients/commit.ts";
import { unequalCopies } from "../gradients/digests.ts";
import type { Handlers } from "../runtime/mod.ts";
import type { SupervisorMessage } from "./protocol.ts";
import {
  allLosses,
  broadcast,
  credit,
  emptyFlow,
  endFor,
  inject,
  openStepRecord,
  outcomeOf,
  stepOfRound,
  type StepRecord,
  type Supervisor,
} from "./supervisor_state.ts";

/** The handlers of the end of steps with a flush. */
export function commitHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
  const { init } = supervisor, running = () => supervisor.steps[0]!;
  const reduce = ({ decision }: StepRecord) => {
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

/** The handlers of the end of steps without flushes, and of the drain of the pipe. */
export function drainHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
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
    StepDone(message) {
      const step = stepOfRound(supervisor, message.round);
      if (!endFor(step, supervisor.held, message)) return;
      supervisor.steps = supervisor.steps.filter((one) => one !== step);
      step.reply(outcomeOf(step, supervisor.held));
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

/** Appends the losses of a slice to those of the slices before. */
const addSlice = (before: Float32Array, losses: Float32Array): Float32Array =>
  Float32Array.of(...before, ...losses);

/** The handlers of micro-batches in the pipe. */
export function flowHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
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
      known[microBatch] = !part?.index ? losses : addSlice(known[microBatch]!, losses);
    },
    Credit: ({ replica }) => credit(supervisor, replica),
  };
}
