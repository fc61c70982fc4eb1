/**
 * How the supervisor ends steps without flushes, and lets the pipe run empty.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import type { SupervisorMessage } from "../protocol.ts";
import { endFor, outcomeOf } from "./step_record.ts";
import { credit, emptyFlow, stepOfRound, type Supervisor, tellAll } from "./supervisor_record.ts";

/** How steps end without flushes, one after the other, and how the pipe runs empty. */
export function drainHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
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
