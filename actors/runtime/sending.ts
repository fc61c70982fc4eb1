/**
 * Sending: every message either arrives in a mailbox or ends as a dead letter.
 *
 * @module
 */

import type { SendOptions } from "./context_api.ts";
import { type DeadLetter, goneFailure, type Reason } from "./failure.ts";
import { type Isolate, post } from "./isolate.ts";
import type { ReplyTo } from "./mailbox.ts";
import type { MessageFrame, Outcome } from "./transports/wire.ts";
import type { ActorRef, Message } from "./types.ts";

/** The platform refused to clone a value. */
export function isCloneError(error: unknown): error is DOMException {
  return error instanceof DOMException && error.name === "DataCloneError";
}

/** Sends a message. Enqueued at once: no other actor runs before the step ends, so the order is
 * the order of the program. */
export function sendMessage(
  isolate: Isolate,
  from: ActorRef,
  to: ActorRef,
  message: Message,
  { lane = "data", transfer }: SendOptions = {},
  replyTo?: ReplyTo,
): void {
  const frame: MessageFrame = { kind: "message", to, from, lane, message, replyTo };
  if (isolate.gone.has(to.isolate)) {
    return bury(isolate, frame, "isolate-gone", isolate.gone.get(to.isolate));
  }
  try {
    post(isolate, to.isolate, frame, transfer);
  } catch (error) {
    if (!isCloneError(error)) throw error;
    bury(isolate, frame, "not-cloneable", undefined, { status: "unsent", why: error.message });
  }
}

/** Makes a message a dead letter, and tells who waits for an answer to it. */
export function bury(
  isolate: Isolate,
  { from, to, message, replyTo }: Omit<MessageFrame, "kind" | "lane">,
  reason: DeadLetter["reason"],
  end?: Reason,
  unsent?: Outcome,
): void {
  isolate.env.onDeadLetter({ from: from.id, to: to.id, type: message.type, reason });
  if (!replyTo) return;
  const outcome = unsent ?? { status: "gone", failure: goneFailure(to.id, end) };
  post(isolate, replyTo.isolate, { kind: "answer", ask: replyTo.ask, outcome });
}
