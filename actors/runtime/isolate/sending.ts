/**
 * Sending: every message either arrives in a mailbox or ends as a dead letter.
 *
 * @module
 */

import type { SendOptions } from "../context_api.ts";
import { type DeadLetter, goneFailure, type Reason } from "../failure.ts";
import { giveReceipt, type Isolate, post } from "./isolate.ts";
import { tellOfLetter } from "./subscription.ts";
import type { ReplyTo } from "../mailbox/envelope.ts";
import { isMessage, isRef, kindOf } from "../messages.ts";
import { isCloneError } from "../snapshot.ts";
import type { MessageFrame, Outcome } from "../transports/wire.ts";
import type { ActorRef, Lane, Message } from "../types.ts";

/** The names of the lanes. */
export const LANES: readonly Lane[] = ["control", "data"];

/**
 * Sends a message. Enqueued at once: no other actor runs before the step ends, so the order is
 * the order of the program. Whatever is wrong with it, it ends as a dead letter.
 */
export function sendMessage(
  isolate: Isolate,
  from: ActorRef,
  to: ActorRef,
  message: Message,
  options: SendOptions | undefined,
  replyTo?: ReplyTo,
): void {
  const { lane = "data", transfer, receipt } = options ?? {};
  const frame = { kind: "message", to, from, lane, message, replyTo, receipt } as const;
  if (!isRef(to) || !isMessage(message) || !LANES.includes(lane)) {
    return bury(isolate, frame, "malformed");
  }
  if (to.system !== isolate.env.system) {
    const why = "it must be an actor of the same system";
    return bury(isolate, frame, "no-such-actor", undefined, { status: "unsent", why });
  }
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
  { from, to, message, replyTo, receipt }: Omit<MessageFrame, "kind" | "lane">,
  reason: DeadLetter["reason"],
  end?: Reason,
  unsent?: Outcome,
): void {
  const letter: DeadLetter = {
    from: from.id,
    to: isRef(to) ? to.id : kindOf(to),
    type: isMessage(message) ? message.type : kindOf(message),
    reason,
  };
  tellOfLetter(isolate, letter, message);
  giveReceipt(isolate, from, receipt);
  if (!replyTo) return;
  const outcome = unsent ?? { status: "gone", failure: goneFailure(to.id, end) };
  post(isolate, replyTo.isolate, { kind: "answer", ask: replyTo.ask, outcome });
}
