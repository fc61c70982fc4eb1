/**
 * The states of the supervisor; which messages have a meaning in each: `supervisor_messages.ts`.
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
