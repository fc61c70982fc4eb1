/**
 * How the supervisor ends steps with a flush: all workers commit, or none does.
 *
 * @module
 */

import { areFinite } from "../../commit/non_finite.ts";
import type { Handlers } from "../../runtime/mod.ts";
import type { SupervisorMessage } from "../protocol.ts";
import { allLosses, endFor, outcomeOf, type StepRecord } from "./step_record.ts";
import { emptyFlow, stepOfRound, type Supervisor, tellAll } from "./supervisor_record.ts";

/** How steps end with a flush. */
export function commitHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
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
      if (step.decision!.hasAllVotes()) decide(step);
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
