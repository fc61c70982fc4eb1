/**
 * The messages of the supervisor: in which states each has a meaning, and who handles it.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import { guarded, type StateTable } from "../message_guard.ts";
import type { SupervisorMessage } from "../protocol.ts";
import { UPDATE_POLICIES } from "../update_policy.ts";
import { commitHandlers } from "./commit_handlers.ts";
import { drainHandlers } from "./drain_handlers.ts";
import { flowHandlers } from "./flow_handlers.ts";
import { lossHandlers } from "./loss_handlers.ts";
import { pauseHandlers } from "./pause_handlers.ts";
import type { Supervisor } from "./supervisor_record.ts";
import type { SupervisorState } from "./supervisor_states.ts";

/** Messages that have a meaning in every state. */
const ALWAYS = ["Stalled", "WorkerDown"] as const;

/** What the owner of the supervisor asks, each of which has an answer. */
export const QUESTIONS: readonly SupervisorMessage["type"][] = [
  "Start",
  "RunStep",
  "Drain",
  "Evaluate",
  "Save",
  "Fetch",
  "Write",
];

/** What comes of micro-batches. */
const FLOW = ["Loss", "Credit"] as const;

/** The states of a supervisor whose steps end with a flush. */
export const FLUSHED_SUPERVISOR: StateTable<SupervisorState, SupervisorMessage> = {
  starting: [...ALWAYS, "Start", "Ready"],
  idle: [...ALWAYS, "RunStep", "Evaluate", "Save", "Fetch", "Write"],
  stepping: [...ALWAYS, ...FLOW, "GradientsReady", "Reduced"],
  deciding: [...ALWAYS, "Reduced"],
  ending: [...ALWAYS, "Reduced", "StepDone"],
  draining: [],
  evaluating: [...ALWAYS, "Loss"],
  saving: [...ALWAYS, "Saved", "Fetched", "Written"],
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
  lost: [],
};

/** All messages that the supervisor knows. */
export const SUPERVISOR_MESSAGES: readonly SupervisorMessage["type"][] = [
  ...new Set([...Object.values(FLUSHED_SUPERVISOR), ...Object.values(UNFLUSHED_SUPERVISOR)].flat()),
];

/** The handlers of a supervisor: each refuses its message in a state in which that has no meaning. */
export function supervisorHandlers(supervisor: Supervisor): Handlers<SupervisorMessage> {
  const { isFlushed } = UPDATE_POLICIES[supervisor.init.updates];
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
