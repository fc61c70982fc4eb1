/**
 * The states of a worker, and which messages have a meaning in each.
 *
 * With a flush, a step goes round once:
 *
 *     connecting ─Connect→ idle ─Begin→ computing ─its last B→ reducing ─Commit→ committing
 *                           ▲                                     │ Abort            │ its last bucket
 *                           └─────────────────────────────────────┴──────────────────┘
 *
 * Without, it steps its weights by itself while more steps begin, until the pipe is to run empty:
 *
 *     connecting ─Connect→ idle ─Begin→ computing ─a B that an update follows→ committing
 *                           ▲            │   ▲                                     │ its last bucket
 *                           └─drained────┘   └─────────────────────────────────────┘
 *
 * @module
 */

import type { WorkerMessage } from "../protocol.ts";
import type { StateTable } from "../message_guard.ts";

/**
 * What a worker is at.
 *
 * - `connecting`: its stages are compiled; it does not know the others.
 * - `idle`: no step has begun; it may evaluate and save.
 * - `computing`: it runs forwards and backwards.
 * - `reducing`: all its backwards have run and it has voted; gradients are added.
 * - `committing`: it steps weights, bucket by bucket.
 */
export type WorkerState = "connecting" | "idle" | "computing" | "reducing" | "committing";

/** Messages that have a meaning in every state. */
const ALWAYS = ["Report", "OnLink", "LinkDue"] as const;

/** What may come from workers that have begun a step earlier, or be to evaluate. */
const INPUTS = ["Inject", "Activation"] as const;

/** Parts of all-reduces: those of a step that was aborted come late, and are dropped. */
const PARTS = ["ReducePart", "TieGradient"] as const;

/** The states of a worker whose steps end with a flush. */
export const FLUSHED_WORKER: StateTable<WorkerState, WorkerMessage> = {
  connecting: [...ALWAYS, "Connect"],
  idle: [...ALWAYS, ...INPUTS, ...PARTS, "Begin", "Save"],
  computing: [...ALWAYS, ...INPUTS, ...PARTS, "Gradient", "Dispatch", "Reduce"],
  reducing: [...ALWAYS, ...PARTS, "Reduce", "Commit", "Abort"],
  committing: [...ALWAYS, ...PARTS, "StepBucket"],
};

/** The states of a worker that steps its weights by itself. */
export const UNFLUSHED_WORKER: StateTable<WorkerState, WorkerMessage> = {
  connecting: [...ALWAYS, "Connect"],
  idle: [...ALWAYS, ...INPUTS, "Begin", "Save"],
  computing: [...ALWAYS, ...INPUTS, "Gradient", "Dispatch", "Begin", "Drain"],
  reducing: [],
  committing: [...ALWAYS, ...INPUTS, "Gradient", "StepBucket", "Begin", "Drain"],
};

/** All messages that a worker knows. */
export const WORKER_MESSAGES: readonly WorkerMessage["type"][] = [
  ...new Set([...Object.values(FLUSHED_WORKER), ...Object.values(UNFLUSHED_WORKER)].flat()),
];
