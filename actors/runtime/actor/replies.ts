/**
 * Answers that an actor gives, in the step that was asked or in a later one, or lets another give.
 *
 * @module
 */

import type { Actor } from "./actor.ts";
import { answer } from "./asks.ts";
import { callerOf } from "./current_step.ts";
import type { ForwardOptions, Reply } from "../context_api.ts";
import { type Isolate, post } from "../isolate/isolate.ts";
import { sendMessage } from "../isolate/sending.ts";
import { assertMessage, assertRef } from "../messages.ts";
import type { ActorRef, Message } from "../types.ts";
import type { ReplyTo } from "../mailbox/envelope.ts";

/** Takes over the answer that this step owes. See {@linkcode Context.deferReply}. */
export function deferReply(isolate: Isolate, actor: Actor): Reply {
  const step = callerOf(actor);
  if (!step?.envelope.replyTo) return () => {};
  const replyTo = take(actor, step.replyTo), { from: asker, message: { type } } = step.envelope;
  step.replyTo = undefined;
  return (value, options) => {
    isolate.observer?.did(actor, { kind: "reply", to: asker, value });
    if (!actor.owed.has(replyTo)) take(actor, undefined);
    const letter = { from: actor.ref.id, to: asker.id, type: `answer:${type}` };
    answer(isolate, replyTo, { status: "answered", value }, options?.transfer, letter);
    actor.owed.take(replyTo);
  };
}

/** Hands the message of this step on to another. See {@linkcode Context.forward}. */
export function forward(
  isolate: Isolate,
  actor: Actor,
  to: ActorRef,
  { receipt }: ForwardOptions<Message>,
): void {
  const { ref } = actor, step = callerOf(actor);
  assertRef("forward", to);
  if (!step || step.envelope.run) {
    throw new TypeError(`Cannot forward: "${ref.id}" must be handling a message`);
  }
  if (receipt !== undefined) assertMessage("forward", receipt);
  const { from, lane, message } = step.envelope, { replyTo } = step;
  if (replyTo) {
    step.replyTo = undefined;
    actor.owed.take(replyTo);
    post(isolate, replyTo.isolate, { kind: "forwarded", ask: replyTo.ask, to });
  }
  const told = receipt && { to: ref, message: receipt };
  // The message still waits. In a confined isolate, which has no other places, the guard counts it anew.
  const credit = isolate.env.places?.length === 0 ? undefined : step.credit;
  if (credit) step.credit = undefined;
  sendMessage(isolate, from, to, message, { lane }, replyTo, told, credit);
}

function take(actor: Actor, replyTo: ReplyTo | undefined): ReplyTo {
  if (replyTo) return replyTo;
  throw new TypeError(`Cannot reply: "${actor.ref.id}" must answer a question only once`);
}
