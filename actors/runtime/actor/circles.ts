/**
 * Circles of questions, which would wait for ever: each is found when its last question is asked.
 *
 * [Note: circles of questions] An actor that has asked takes no message until it is answered. So
 * when a question reaches an actor that waits itself, a chase follows who waits for whom, from
 * isolate to isolate. If it comes back to the actor that asked, that question fails. Whoever is
 * passed must still owe the answer that the one before waits for, or the chase ends: answers may
 * have been under way. What cannot be found is a wait for a plain message, as after `deferReply`:
 * nobody knows who would send it. In a simulation that is a deadlock once nobody can do anything.
 *
 * @module
 */

import { type Isolate, post } from "../isolate/isolate.ts";
import type { ReplyTo, Step } from "../mailbox/envelope.ts";
import type { ChaseFrame, MessageFrame } from "../transports/wire.ts";
import type { ActorRef } from "../types.ts";
import { type Actor, stepsOf, SYSTEM_SERIAL } from "./actor.ts";
import { settleAsk, withdraw } from "./asks.ts";

/** A question has reached an actor, which may wait itself. */
export function suspect(isolate: Isolate, actor: Actor, frame: MessageFrame): void {
  const { to, from, replyTo } = frame;
  const waits = actor.maxSteps === 1 && actor.step && actor.step.asks.size > 0;
  if (!replyTo || from.serial === SYSTEM_SERIAL || !waits) return;
  const start: ChaseFrame = {
    kind: "chase",
    to,
    edge: replyTo,
    by: from,
    first: replyTo,
    path: [],
  };
  // Who asks may still answer in the same breath, which ends the circle.
  if (from.isolate === isolate.number) isolate.suspects.push(start);
  else chase(isolate, start);
}

/** Follows the questions of a step that pauses or is over. */
export function chaseSuspects(isolate: Isolate): void {
  for (const start of isolate.suspects.splice(0)) chase(isolate, start);
}

/** Follows one question: whether whoever was asked waits for who asked first. */
export function chase(isolate: Isolate, { to, edge, by, first, path }: ChaseFrame): void {
  const actor = isolate.actors.get(to.serial);
  if (!actor || !owes(actor, edge)) return;
  if (isSame(to, by)) {
    const { to: asked, asker } = isolate.asks.get(first.ask) ?? {};
    // Where steps overlap, only the one that owes the answer must not wait.
    if (actor.maxSteps > 1 && !(asker && isFor(asker.step, edge))) return;
    settleAsk(isolate, first.ask, { status: "circle", path });
    return asked && withdraw(isolate, asked, first);
  }
  // A circle of others is theirs to find.
  if (path.some((ref) => isSame(ref, to))) return;
  const steps = stepsOf(actor).filter((step) => actor.maxSteps === 1 || isFor(step, edge));
  for (const ask of steps.flatMap(({ asks }) => [...asks])) {
    const next = isolate.asks.get(ask)?.to;
    if (!next) continue;
    const edge = { isolate: isolate.number, ask };
    const hop: ChaseFrame = { kind: "chase", to: next, edge, by, first, path: [...path, to] };
    if (next.isolate === isolate.number) chase(isolate, hop);
    else post(isolate, next.isolate, hop);
  }
}

/** Whether a step handles a question. */
function isFor({ envelope: { replyTo } }: Step, question: ReplyTo): boolean {
  return replyTo !== undefined && isSameQuestion(replyTo, question);
}

/** Whether an actor has a question that it has not answered. */
function owes({ owed, mailbox }: Actor, question: ReplyTo): boolean {
  for (const [replyTo] of owed) if (isSameQuestion(replyTo, question)) return true;
  for (const { replyTo } of mailbox) if (replyTo && isSameQuestion(replyTo, question)) return true;
  return false;
}

function isSame(one: ActorRef, other: ActorRef): boolean {
  return one.serial === other.serial && one.isolate === other.isolate;
}

function isSameQuestion(one: ReplyTo, other: ReplyTo): boolean {
  return one.ask === other.ask && one.isolate === other.isolate;
}
