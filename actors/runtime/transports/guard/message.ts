/**
 * What comes of a message of a confined isolate.
 *
 * @module
 */

import { keyOf } from "../../actor/actor.ts";
import type { Receipt, ReplyTo } from "../../mailbox/envelope.ts";
import { isMessage } from "../../messages.ts";
import type { ActorRef, Lane, Message } from "../../types.ts";
import type { Frame, MessageFrame } from "../wire.ts";
import {
  borrow,
  type Capabilities,
  given,
  isNobody,
  isOwn,
  questionKey,
  stranger,
} from "./capabilities.ts";
import { holdingsOf } from "./holdings.ts";
import { countOf, nameOf, recordOf, refOf, replyToOf, type Untrusted } from "./reading.ts";
import { forged, malformed, notGiven, unsent, type Verdict } from "./verdict.ts";

/** A message whose fields are what they must be. */
interface Letter {
  readonly to: ActorRef;
  readonly from: ActorRef;
  readonly lane: Lane;
  readonly message: Message;
  readonly replyTo: ReplyTo | undefined;
  readonly receipt: Receipt | undefined;
}

/** Judges a message for an actor of isolate `to`. */
export function judgeMessage(
  caps: Capabilities,
  frame: Untrusted<MessageFrame>,
  to: number,
): Verdict {
  const letter = letterIn(caps, frame);
  if (!letter || letter.to.isolate !== to) return malformed("message");
  const { from, message, replyTo } = letter;
  if (isNobody(letter.to)) return redeem(caps, from, message);
  const target = given(caps, letter.to), sender = senderOf(caps, letter);
  if (!sender) return forged("send a message in the name of another");
  const { refs, bytes, isWhole } = holdingsOf(message, letter.receipt?.message);
  const unknown = target ? stranger(caps, refs) : letter.to;
  if (unknown || !target || !isWhole || nameOf(message.type) === undefined) {
    const on = unknown?.id ?? letter.to.id;
    const why = unknown
      ? notGiven(caps, unknown)
      : "the actor of a package must not send a message of that many values";
    return {
      ...replyTo && unsent(caps, replyTo, why),
      denied: {
        what: target && unknown ? "reference" : "message",
        on,
        letter: {
          from: sender.id,
          to: letter.to.id,
          type: message.type.slice(0, 1000),
          reason: "denied",
        },
      },
    };
  }
  const credit = borrow(caps, to, bytes);
  if (!credit) {
    return { forged: `too many of its messages must not wait at once: it floods others` };
  }
  if (replyTo?.isolate === caps.self.isolate) caps.asked.set(replyTo.ask, target);
  const { lane, receipt } = letter;
  return {
    post: {
      to,
      frame: { kind: "message", to: target, from: sender, lane, message, replyTo, receipt, credit },
    },
  };
}

function letterIn(caps: Capabilities, frame: Untrusted<MessageFrame>): Letter | undefined {
  const { self: { system } } = caps, { lane, message } = frame;
  const to = refOf(frame.to, system), from = refOf(frame.from, system);
  if (!to || !from || !isMessage(message) || lane !== "control" && lane !== "data") return;
  const replyTo = replyToOf(frame.replyTo), receipt = receiptOf(caps, frame.receipt);
  if (!replyTo && frame.replyTo !== undefined) return;
  if (!receipt && frame.receipt !== undefined) return;
  return { to, from, lane, message, replyTo, receipt };
}

/** A receipt goes to one of its own actors. */
function receiptOf(caps: Capabilities, value: unknown): Receipt | undefined {
  const receipt = recordOf(value), to = refOf(receipt?.to, caps.self.system);
  if (!to || !isOwn(caps, to) || !isMessage(receipt?.message)) return undefined;
  return { to, message: receipt.message };
}

/**
 * In whose name a message goes: its own actor's; that of whoever asked, if it hands a question on;
 * the isolate's first, if it hands on what was no question, as nobody could tell that from a forgery.
 */
function senderOf(caps: Capabilities, { from, to, replyTo }: Letter): ActorRef | undefined {
  const isMine = isOwn(caps, from);
  if (!replyTo || replyTo.isolate === caps.self.isolate) {
    if (isMine) return from;
    return !replyTo && isNobody(from) ? caps.self : undefined;
  }
  const key = questionKey(replyTo), question = caps.owed.get(key);
  if (isMine || question?.handedTo !== keyOf(to)) return undefined;
  caps.owed.take(key);
  return question.asker;
}

/** Sends the receipt that it was asked for, which it has not seen. */
function redeem(caps: Capabilities, from: ActorRef, message: Message): Verdict {
  const ticket = countOf(recordOf(message)?.ticket);
  const receipt = ticket === undefined ? undefined : caps.receipts.take(ticket);
  if (!receipt || !isOwn(caps, from)) {
    return caps.receipts.isLossy ? {} : forged("send a receipt for which nobody has asked");
  }
  const { to, message: told } = receipt;
  const frame: Frame = { kind: "message", to, from, lane: "control", message: told };
  return { post: { to: to.isolate, frame } };
}
