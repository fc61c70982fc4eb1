/**
 * Questions: who waits for whose answer, and how each ends.
 *
 * @module
 */

import type { Actor } from "./actor.ts";
import { ASK_TIMEOUT_MS, type AskOptions } from "../context_api.ts";
import { ActorFailedError, AskTimeoutError, goneFailure } from "../failure.ts";
import { type Isolate, offer, post, schedule } from "../isolate/isolate.ts";
import type { ReplyTo } from "../mailbox/mailbox.ts";
import { isMessage, isRef, kindOf } from "../messages.ts";
import { LANES, sendMessage } from "../isolate/sending.ts";
import { tellOfLetter } from "../isolate/subscription.ts";
import type { AnswerFrame, Outcome } from "../transports/wire.ts";
import type { ActorRef, Message } from "../types.ts";
import type { PendingAsk } from "./waiting.ts";

/** The message by which an actor gets an answer. */
export interface Answer extends Message {
  /** Which of the questions of this actor it answers, from 0. */
  readonly ask: number;
  readonly outcome: Outcome;
}

/** Sends a question and promises the answer. See {@linkcode Context.ask}. */
export function ask(
  isolate: Isolate,
  from: ActorRef,
  actor: Actor | undefined,
  to: ActorRef,
  message: Message,
  options?: AskOptions,
): Promise<unknown> {
  const refusal = refuseOptions(to, message, options) ?? (actor && refuse(actor, to, message));
  if (refusal) return Promise.reject(refusal);
  const { timeoutMs = ASK_TIMEOUT_MS } = options ?? {};
  const id = isolate.nextAsk++;
  const step = actor?.step;
  const answer = new Promise((resolve, reject) => {
    isolate.asks.set(id, {
      from,
      to,
      type: message.type,
      timeoutMs,
      nth: actor ? actor.asked++ : 0,
      ...(actor && step ? { asker: { actor, step } } : {}),
      resolve,
      reject,
      cancelTimeout: isolate.env.clock.after(
        timeoutMs,
        () => settleAsk(isolate, id, { status: "timeout" }),
      ),
    });
  });
  step?.asks.add(id);
  step?.wake?.();
  // From now on the actor may do what was scheduled while it was at work.
  if (actor) offer(isolate, actor);
  sendMessage(isolate, from, to, message, options, { isolate: isolate.number, ask: id });
  return answer;
}

/** What is wrong with a question, whoever asks it. */
function refuseOptions(to: ActorRef, message: Message, options?: AskOptions): Error | undefined {
  if (!isRef(to)) return new TypeError(`Cannot ask: it must be an actor, received ${kindOf(to)}`);
  const cannot = `Cannot ask "${to.id}"`;
  if (!isMessage(message)) {
    const kind = kindOf(message);
    return new TypeError(`${cannot}: a question must be a record with a type, received ${kind}`);
  }
  const { timeoutMs = ASK_TIMEOUT_MS, lane = "data" } = options ?? {};
  if (typeof timeoutMs !== "number" || !(timeoutMs >= 0)) {
    return new RangeError(
      `${cannot} for "${message.type}": timeoutMs must be 0 or more, or Infinity, received ` +
        String(timeoutMs),
    );
  }
  if (!LANES.includes(lane)) {
    return new RangeError(
      `${cannot} for "${message.type}": lane must be "control" or "data", received ${String(lane)}`,
    );
  }
}

function refuse(actor: Actor, to: ActorRef, { type }: Message): TypeError | undefined {
  const { ref, step } = actor;
  const cannot = `Cannot ask "${to.id}" for "${type}":`;
  if (actor.state === "stopping") {
    return new TypeError(`${cannot} "${ref.id}" must not be stopping`);
  }
  if (!step) return new TypeError(`${cannot} "${ref.id}" must be handling a message`);
  if (to.isolate === ref.isolate && to.serial === ref.serial) {
    return new TypeError(`${cannot} an actor must not wait for itself`);
  }
}

/** Ends a question. An answer to one that has ended already is the dead letter `letter`. */
export function settleAsk(
  isolate: Isolate,
  id: number,
  outcome: Outcome,
  letter?: AnswerFrame["letter"],
): void {
  const pending = isolate.asks.take(id);
  if (!pending) {
    if (letter) tellOfLetter(isolate, { ...letter, reason: "too-late" }, valueOf(outcome));
    return;
  }
  pending.cancelTimeout();
  if (!pending.asker) return resolve(pending, outcome);
  const { actor, step } = pending.asker;
  // The answer is a step of its own: the order in which answers come is a choice like any other.
  const message: Answer = { type: `answer:${pending.type}`, ask: pending.nth, outcome };
  schedule(isolate, actor, message, pending.to, () => {
    step.asks.delete(id);
    resolve(pending, outcome);
  });
}

function valueOf(outcome: Outcome): unknown {
  return outcome.status === "answered" ? outcome.value : undefined;
}

function resolve(pending: PendingAsk, outcome: Outcome): void {
  const { from, to, type, timeoutMs } = pending;
  switch (outcome.status) {
    case "answered":
      return pending.resolve(outcome.value);
    case "gone":
      return pending.reject(new ActorFailedError(outcome.failure));
    case "timeout":
      return pending.reject(new AskTimeoutError(from.id, to.id, type, timeoutMs));
    case "unsent":
      return pending.reject(
        new TypeError(`Cannot ask "${to.id}" for "${type}": ${outcome.why}`),
      );
    case "unanswered":
      return pending.reject(
        new TypeError(`Cannot answer "${from.id}": "${to.id}" must call ctx.reply for "${type}"`),
      );
  }
}

/** Ends the questions of an actor that stops, so that its handler can unwind. */
export function abandonAsks(isolate: Isolate, { ref, step, agenda }: Actor): void {
  if (!step) return;
  for (let answer = agenda.shift(); answer; answer = agenda.shift()) answer.run?.();
  for (const id of step.asks) {
    const pending = isolate.asks.take(id);
    pending?.cancelTimeout();
    if (!step.isSettled) pending?.reject(new ActorFailedError(goneFailure(ref.id)));
  }
  step.asks.clear();
}

/**
 * Answers a question with an outcome.
 *
 * @param letter what becomes of it when nobody waits for it any more.
 * @throws {DOMException} when it cannot be cloned.
 */
export function answer(
  isolate: Isolate,
  { isolate: to, ask }: ReplyTo,
  outcome: Outcome,
  transfer?: readonly ArrayBuffer[],
  letter?: AnswerFrame["letter"],
): void {
  if (letter && isolate.gone.has(to)) {
    tellOfLetter(isolate, { ...letter, reason: "isolate-gone" }, valueOf(outcome));
  } else post(isolate, to, { kind: "answer", ask, outcome, letter }, transfer);
}

/** Ends every question to actors of an isolate that is gone. */
export function loseAsks(isolate: Isolate, number: number): void {
  for (const [id, { to }] of isolate.asks) {
    if (to.isolate !== number) continue;
    const failure = goneFailure(to.id, isolate.gone.get(number));
    settleAsk(isolate, id, { status: "gone", failure });
  }
}

/** Ends every question, as nobody will answer any more. */
export function abandonAll(isolate: Isolate): void {
  for (const [id, { to }] of isolate.asks) {
    settleAsk(isolate, id, { status: "gone", failure: goneFailure(to.id) });
  }
}
