/**
 * What gets micro-batches through: a step begins, losses and credits come back.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import type { SupervisorMessage } from "../protocol.ts";
import { openStepRecord } from "./step_record.ts";
import { credit, inject, stepOfRound, type Supervisor } from "./supervisor_record.ts";

/** The losses of a micro-batch, slice by slice, with those of one more. */
const addSlice = (before: Float32Array, losses: Float32Array): Float32Array =>
  Float32Array.of(...before, ...losses);

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
    Loss({ round, microBatch, slice = 0, losses }) {
      if (supervisor.state === "evaluating") return evaluations.add(microBatch, losses);
      const { losses: known } = stepOfRound(supervisor, round);
      known[microBatch] = slice === 0 ? losses : addSlice(known[microBatch]!, losses);
    },
    Credit: ({ replica }) => credit(supervisor, replica),
  };
}
