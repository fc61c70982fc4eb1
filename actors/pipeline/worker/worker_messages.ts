/**
 * The messages of a worker: in which states each has a meaning, and who handles it.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import { guarded, type StateTable } from "../message_guard.ts";
import type { PeerMessage, WorkerMessage } from "../protocol.ts";
import { UPDATE_POLICIES } from "../update_policy.ts";
import { inputHandlers } from "./input_handlers.ts";
import { pauseHandlers } from "./pause_handlers.ts";
import type { WeightUpdater } from "./weight_updater.ts";
import type { Worker } from "./worker_record.ts";
import type { WorkerState } from "./worker_states.ts";

/** Messages that have a meaning in every state. */
const ALWAYS = ["Report", "OnLink", "LinkDue"] as const;

/** What may come from workers that have begun a step earlier, or be to evaluate. */
const INPUTS = ["Inject", "Activation"] as const;

/** Parts of all-reduces: those of a step that was aborted come late, and are dropped. */
const PARTS = ["ReducePart", "TieGradient"] as const;

/** The states of a worker whose steps end with a flush. */
export const FLUSHED_WORKER: StateTable<WorkerState, WorkerMessage> = {
  connecting: [...ALWAYS, "Connect"],
  idle: [...ALWAYS, ...INPUTS, ...PARTS, "Begin", "Save", "Fetch", "Write"],
  computing: [...ALWAYS, ...INPUTS, ...PARTS, "Gradient", "Dispatch", "Reduce"],
  reducing: [...ALWAYS, ...PARTS, "Reduce", "Commit", "Abort"],
  committing: [...ALWAYS, ...PARTS, "StepBucket"],
};

/** The states of a worker that steps its weights by itself. */
export const UNFLUSHED_WORKER: StateTable<WorkerState, WorkerMessage> = {
  connecting: [...ALWAYS, "Connect"],
  idle: [...ALWAYS, ...INPUTS, "Begin", "Save", "Fetch", "Write"],
  computing: [...ALWAYS, ...INPUTS, "Gradient", "Dispatch", "Begin", "Drain"],
  reducing: [],
  committing: [...ALWAYS, ...INPUTS, "Gradient", "StepBucket", "Begin", "Drain"],
};

/** All messages that a worker knows. */
export const WORKER_MESSAGES: readonly WorkerMessage["type"][] = [
  ...new Set([...Object.values(FLUSHED_WORKER), ...Object.values(UNFLUSHED_WORKER)].flat()),
];

/** The handlers of a worker: each refuses its message in a state in which that has no meaning. */
export function workerHandlers(worker: Worker, updater: WeightUpdater): Handlers<WorkerMessage> {
  const { link, init } = worker, { isFlushed } = UPDATE_POLICIES[init.updates];
  const handlers: Handlers<WorkerMessage> = guarded(
    "worker",
    isFlushed ? FLUSHED_WORKER : UNFLUSHED_WORKER,
    () => worker.state,
    WORKER_MESSAGES,
    {
      ...inputHandlers(worker, updater),
      ...updater.handlers,
      ...pauseHandlers(worker),
      OnLink: ({ message, arrivesAt }) => void link.receive(message, arrivesAt),
      async LinkDue() {
        for (const message of link.arrived()) {
          await (handlers[message.type] as (message: PeerMessage) => void | Promise<void>)(message);
        }
      },
    },
  );
  return handlers;
}
