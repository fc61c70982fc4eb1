/**
 * What gets micro-batches through: a step begins, losses and credits come back.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import type { SupervisorMessage } from "../protocol.ts";
import { openStepRecord } from "./step_record.ts";
import { credit, inject, stepOfRound, type Supervisor } from "./supervisor_record.ts";

/** What gets micro-batches through. */
export function flowHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
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
