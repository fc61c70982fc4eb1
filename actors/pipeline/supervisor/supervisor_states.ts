/**
 * The states of the supervisor, and which messages have a meaning in each.
 *
 * With a flush:
 *
 *     starting ─all Ready→ idle ─RunStep→ stepping ─all votes, but no norm→ deciding
 *                           ▲                 │ all votes                      │ the norm
 *                           │                 ▼                                │
 *                           └─all StepDone─ ending ◀───────────────────────────┘
 *
 * Without:
 *
 *     starting ─all Ready→ idle ─RunStep→ stepping ─Drain→ draining ─all Drained→ idle
 *
 * In both, Evaluate and Save lead from idle to `evaluating` and `saving` and back; and from any state
 * to `lost` when a worker is gone.
 *
 * @module
 */

import type { StateTable } from "../message_guard.ts";
import type { SupervisorMessage } from "../protocol.ts";

/**
 * What the supervisor is at.
 *
 * - `starting`: not all workers are ready.
 * - `idle`: the pipe is empty.
 * - `stepping`: micro-batches go through; without flushes, of any number of steps.
 * - `deciding`: all copies have voted; whether and how to commit waits for the norm of the gradients.
 * - `ending`: it has told all to commit or to abort.
 * - `draining`: no more steps begin, and those under way go to their ends.
 * - `evaluating`: micro-batches go through whose losses are wanted, and nothing else.
 * - `saving`: weights and moments are on their way.
 * - `lost`: a worker is gone. Each question is answered with that, all else is dropped.
 */
export type SupervisorState =
  | "starting"
  | "idle"
  | "stepping"
  | "deciding"
  | "ending"
  | "draining"
  | "evaluating"
  | "saving"
  | "lost";

/** Messages that have a meaning in every state. */
const ALWAYS = ["Stalled", "WorkerDown"] as const;

/** What the owner of the supervisor asks, each of which has an answer. */
export const QUESTIONS: readonly SupervisorMessage["type"][] = [
  "Start",
  "RunStep",
  "Drain",
  "Evaluate",
  "Save",
];

/** What comes of micro-batches. */
const FLOW = ["Loss", "Credit"] as const;

/** The states of a supervisor whose steps end with a flush. */
export const FLUSHED_SUPERVISOR: StateTable<SupervisorState, SupervisorMessage> = {
  starting: [...ALWAYS, "Start", "Ready"],
  idle: [...ALWAYS, "RunStep", "Evaluate", "Save"],
  stepping: [...ALWAYS, ...FLOW, "GradientsReady", "Reduced"],
  deciding: [...ALWAYS, "Reduced"],
  ending: [...ALWAYS, "Reduced", "StepDone"],
  draining: [],
  evaluating: [...ALWAYS, "Loss"],
  saving: [...ALWAYS, "Saved"],
  lost: [],
};

/** The states of a supervisor whose workers step their weights by themselves. */
export const UNFLUSHED_SUPERVISOR: StateTable<SupervisorState, SupervisorMessage> = {
  starting: [...ALWAYS, "Start", "Ready"],
  idle: [...ALWAYS, "RunStep", "Drain", "Evaluate", "Save"],
  stepping: [...ALWAYS, ...FLOW, "RunStep", "StepDone", "Drain"],
  deciding: [],
  ending: [],
  draining: [...ALWAYS, ...FLOW, "StepDone", "Drained"],
  evaluating: [...ALWAYS, "Loss"],
  saving: [...ALWAYS, "Saved"],
  lost: [],
};

/** All messages that the supervisor knows. */
export const SUPERVISOR_MESSAGES: readonly SupervisorMessage["type"][] = [
  ...new Set([...Object.values(FLUSHED_SUPERVISOR), ...Object.values(UNFLUSHED_SUPERVISOR)].flat()),
];
