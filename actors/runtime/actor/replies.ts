/**
 * Answers that an actor gives, in the step that was asked or in a later one.
 *
 * @module
 */

import type { Actor } from "./actor.ts";
import { answer } from "./asks.ts";
import type { Reply } from "../context_api.ts";
import type { Isolate } from "../isolate/isolate.ts";
import type { ReplyTo } from "../mailbox/envelope.ts";

/** Takes over the answer that this step owes. See {@linkcode Context.deferReply}. */
export function deferReply(isolate: Isolate, actor: Actor): Reply {
  const { step } = actor;
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

function take(actor: Actor, replyTo: ReplyTo | undefined): ReplyTo {
  if (replyTo) return replyTo;
  throw new TypeError(`Cannot reply: "${actor.ref.id}" must answer a question only once`);
}
