/**
 * Questions between actors, and their answers.
 *
 * @module
 */

import type { Actor, PendingAsk } from "./actor.ts";
import { ASK_TIMEOUT_MS, type AskOptions, MAILBOX_CAPACITY, type Reply } from "./context.ts";
import { ActorFailedError, AskTimeoutError, describeFailure, goneFailure } from "./failure.ts";
import {
  type Isolate,
  LANES,
  offer,
  post,
  reportDeadLetter,
  schedule,
  sendMessage,
  sendReceipt,
} from "./isolate.ts";
import type { HandlingStep, ReplyTo } from "./mailbox.ts";
import { type ActorRef, isMessage, isRef, kindOf, type Message } from "./types.ts";
import type { AnswerFrame, Outcome } from "./wire.ts";

/** Sends a question and returns a promise of its answer. See {@linkcode Context.ask}. */
export function ask(
  isolate: Isolate,
  from: ActorRef,
  actor: Actor | undefined,
  to: ActorRef,
  message: Message,
  options?: AskOptions,
): Promise<unknown> {
  const refusal = refuseAsk(isolate, actor, to, message, options);
  if (refusal) return Promise.reject(refusal);
  if (options?.signal?.aborted) return Promise.reject(options.signal.reason);
  const id = isolate.nextAsk++, step = actor?.step;
  const answer = new Promise((resolve, reject) => {
    isolate.asks.set(id, {
      ...{ from, to, type: message.type, timeoutMs: options?.timeoutMs ?? ASK_TIMEOUT_MS },
      nth: actor ? actor.asked++ : 0,
      asker: actor,
      resolve,
      reject,
      ...limits(isolate, id, to, options),
    });
  });
  step?.asks.add(id);
  step?.wake?.();
  // A suspended actor can do the work that was scheduled during its step.
  if (actor) offer(isolate, actor);
  sendMessage(isolate, from, to, message, options, { isolate: isolate.number, ask: id });
  return answer;
}

/** Starts the timeout of a question and listens to its abort signal. */
function limits(
  isolate: Isolate,
  id: number,
  to: ActorRef,
  { timeoutMs = ASK_TIMEOUT_MS, signal }: AskOptions = {},
): Pick<PendingAsk, "cancel" | "signal"> {
  const onTimeout = () => settleAsk(isolate, id, { status: "timeout" });
  const cancelTimeout = isolate.env.clock.after(timeoutMs, onTimeout);
  if (!signal) return { cancel: cancelTimeout };
  const onAbort = () => {
    const { name, message: why } = describeFailure("", "throw", signal.reason).error;
    settleAsk(isolate, id, { status: "aborted", name, why });
    // Withdraws the question unless its handler has begun.
    const question = { isolate: isolate.number, ask: id };
    post(isolate, to.isolate, { kind: "withdraw", to, question });
  };
  signal.addEventListener("abort", onAbort, { once: true });
  return {
    signal,
    cancel() {
      cancelTimeout();
      signal.removeEventListener("abort", onAbort);
    },
  };
}

/** Removes a question from the mailbox of an actor. */
export function withdraw(isolate: Isolate, actor: Actor | undefined, question: ReplyTo): void {
  for (const envelope of actor?.mailbox ?? []) {
    const { replyTo } = envelope;
    if (replyTo?.ask !== question.ask || replyTo?.isolate !== question.isolate) continue;
    actor!.mailbox.remove(envelope);
    sendReceipt(isolate, envelope.from, envelope.receipt);
    return offer(isolate, actor!);
  }
}

/** Returns the error of an invalid question; undefined if it is valid. */
export function refuseAsk(
  { asks: { size } }: { readonly asks: Pick<Isolate["asks"], "size"> },
  actor: Pick<Actor, "ref" | "state"> & { readonly step?: unknown } | undefined,
  to: ActorRef,
  message: Message,
  { timeoutMs = ASK_TIMEOUT_MS, lane = "data", signal }: AskOptions = {},
): Error | undefined {
  if (!isRef(to)) return new TypeError(`Cannot ask: it must be an actor, received ${kindOf(to)}`);
  if (!isMessage(message)) {
    return new TypeError(
      `Cannot ask "${to.id}": a question must be a record with a type, received ${kindOf(message)}`,
    );
  }
  const cannot = `Cannot ask "${to.id}" for "${message.type}":`;
  const wrong = (must: string, received: unknown) =>
    new RangeError(`${cannot} ${must}, received ${String(received)}`);
  if (typeof timeoutMs !== "number" || !(timeoutMs >= 0)) {
    return wrong("timeoutMs must be 0 or more, or Infinity", timeoutMs);
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    return new TypeError(`${cannot} signal must be an AbortSignal, received ${kindOf(signal)}`);
  }
  if (!LANES.includes(lane)) return wrong(`lane must be ${LANES.join(", ")}`, lane);
  const must = !actor
    ? undefined
    : actor.state === "stopping"
    ? `"${actor.ref.id}" must not be stopping`
    : !actor.step
    ? `"${actor.ref.id}" must be handling a message`
    : to.serial === actor.ref.serial && to.isolate === actor.ref.isolate
    ? "an actor must not wait for itself"
    : undefined;
  if (must) return new TypeError(`${cannot} ${must}`);
  if (size < MAILBOX_CAPACITY) return undefined;
  return wrong(`at most ${size} questions must wait`, "one more");
}

/** Settles a question. If it has already been settled, reports the dead letter `letter`. */
export function settleAsk(
  isolate: Isolate,
  id: number,
  outcome: Outcome,
  letter?: AnswerFrame["letter"],
): void {
  const pending = isolate.asks.take(id);
  if (!pending) {
    if (letter) reportDeadLetter(isolate, { ...letter, reason: "too-late" }, valueOf(outcome));
    return;
  }
  pending.cancel();
  const { asker } = pending;
  if (!asker) return resolve(pending, outcome);
  // The answer is a separate step, so the order of answers is also chosen by the picker.
  const message = { type: `answer:${pending.type}`, ask: pending.nth, outcome };
  schedule(isolate, asker, message, pending.to, () => {
    asker.step?.asks.delete(id);
    resolve(pending, outcome);
  });
}

function valueOf(outcome: Outcome): unknown {
  return outcome.status === "answered" ? outcome.value : undefined;
}

function resolve(pending: PendingAsk, outcome: Outcome): void {
  if (outcome.status === "answered") pending.resolve(outcome.value);
  else if (outcome.status === "aborted") pending.reject(pending.signal?.reason);
  else pending.reject(errorOf(pending, outcome));
}

/** Returns the error of a question that was not answered. */
export function errorOf(
  { from, to, type, timeoutMs }: Pick<PendingAsk, "from" | "to" | "type" | "timeoutMs">,
  outcome: Exclude<Outcome, { readonly status: "answered" }>,
): Error {
  const cannot = `Cannot ask "${to.id}" for "${type}":`;
  switch (outcome.status) {
    case "gone":
      return new ActorFailedError(outcome.failure);
    case "timeout":
      return new AskTimeoutError(from.id, to.id, type, timeoutMs);
    case "unsent":
      return new TypeError(`${cannot} ${outcome.why}`);
    case "unanswered":
      return new TypeError(
        `Cannot answer "${from.id}": "${to.id}" must call ctx.reply for "${type}"`,
      );
    case "failed": {
      const { name, message } = outcome.failure.error;
      return Object.assign(new Error(message), { name });
    }
    case "aborted":
      return new DOMException(outcome.why, outcome.name);
  }
}

/** Rejects the questions of a stopping actor, so that its handler can unwind. */
export function abandonAsks(isolate: Isolate, { ref, agenda }: Actor, step: HandlingStep): void {
  for (let answer = agenda.shift(); answer; answer = agenda.shift()) answer.run?.();
  for (const id of step.asks) {
    const pending = isolate.asks.take(id);
    pending?.cancel();
    if (!step.isSettled) pending?.reject(new ActorFailedError(goneFailure(ref.id)));
  }
  step.asks.clear();
}

/**
 * Sends the outcome of a question.
 *
 * @param letter the dead letter to report if the asker no longer waits.
 * @throws {DOMException} if the outcome cannot be cloned.
 */
export function answer(
  isolate: Isolate,
  { isolate: to, ask }: ReplyTo,
  outcome: Outcome,
  transfer?: readonly ArrayBuffer[],
  letter?: AnswerFrame["letter"],
): void {
  if (letter && isolate.gone.has(to)) {
    return reportDeadLetter(isolate, { ...letter, reason: "isolate-gone" }, valueOf(outcome));
  }
  const frame: AnswerFrame = { kind: "answer", from: isolate.number, ask, outcome, letter };
  post(isolate, to, frame, transfer);
}

/** Settles all questions to actors of an isolate that is gone, or all questions. */
export function failAsks(isolate: Isolate, number?: number): void {
  for (const [id, { to }] of isolate.asks) {
    if (number !== undefined && to.isolate !== number) continue;
    const failure = goneFailure(to.id, isolate.gone.get(to.isolate));
    settleAsk(isolate, id, { status: "gone", failure });
  }
}

/** Returns a function to answer the current message. See {@linkcode Context.deferReply}. */
export function deferReply(isolate: Isolate, actor: Actor): Reply {
  const { step } = actor;
  if (!step?.envelope.replyTo) return () => {};
  const replyTo = take(actor, step.replyTo), { from: asker, message: { type } } = step.envelope;
  step.replyTo = undefined;
  return (value, options) => {
    isolate.observer?.did(actor, { kind: "reply", to: asker, value });
    if (!actor.pendingReplies.has(replyTo)) take(actor, undefined);
    const letter = { from: actor.ref.id, to: asker.id, type: `answer:${type}` };
    answer(isolate, replyTo, { status: "answered", value }, options?.transfer, letter);
    actor.pendingReplies.take(replyTo);
  };
}

function take(actor: Actor, replyTo: ReplyTo | undefined): ReplyTo {
  if (replyTo) return replyTo;
  throw new TypeError(`Cannot reply: "${actor.ref.id}" must answer a question only once`);
}
