/**
 * The receive-dispatch loop: takes the next message and lets its actor handle it, step by step.
 *
 * @module
 */

import { setImmediate } from "node:timers";
import { type Actor, describeStep, OTHERS, type PendingMessage } from "./actor.ts";
import { answer } from "./asks.ts";
import type { HandlingStep } from "./mailbox.ts";
import type { SystemEvent } from "./context.ts";
import { describeFailure, type Failure } from "./failure.ts";
import { type Isolate, offer, post, rejectMessage, sendReceipt } from "./isolate.ts";
import { endIfDrained, fail, stopFurther } from "./lifecycle.ts";

/**
 * Reports a step that takes longer than the limit: at the limit, or at its end if it blocked the
 * event loop until then.
 *
 * @returns a function to call at its end.
 */
function timeStep(
  isolate: Isolate,
  actor: Actor,
  step: HandlingStep,
  limitMs: number,
): () => void {
  const { clock } = isolate.env, begun = clock.now();
  let isTold = false;
  const tell = (isOver: boolean) => {
    isTold = true;
    emit(isolate, {
      type: "slow-step",
      actor: actor.ref.id,
      handling: describeStep(actor, step) ?? "",
      forMs: clock.now() - begun,
      isOver,
      waitsFor: [...step.asks].flatMap((ask) => isolate.asks.get(ask)?.to.id ?? []),
    });
  };
  const cancel = clock.after(limitMs, () => tell(false));
  return () => {
    cancel();
    if (!isTold && clock.now() - begun >= limitMs) tell(true);
  };
}

/** Sends an event to the owner of the system. */
function emit(isolate: Isolate, event: SystemEvent): void {
  const { onEvent } = isolate.env;
  if (onEvent) onEvent(event);
  else post(isolate, 0, { kind: "event", event });
}

/** Runs steps until no actor can run: the receive-dispatch loop. */
export async function run(isolate: Isolate): Promise<void> {
  const { env, picker } = isolate;
  try {
    for (;;) {
      const work = picker.next();
      if (work) {
        const { actor, envelope } = work;
        isolate.observer?.begins(actor, envelope, env.clock.now());
        const ended = handleNext(isolate, work);
        if (ended) {
          isolate.current = actor;
          await ended;
          isolate.current = undefined;
        }
        isolate.observer?.ends(actor);
        const breath = env.breathe();
        if (breath) {
          await breath;
          await env.network?.drain();
        }
      } else if (!env.clock.advance?.()) break;
    }
  } catch (error) {
    // Handlers cannot throw here: this is an invalid choice or an error of the runtime.
    env.onFailure(describeFailure("system", "throw", error));
  }
  isolate.isRunning = false;
}

/** Begins or resumes a step. Returns a promise of its end or its next pause; undefined if it has
 * ended or paused. */
export function handleNext(
  isolate: Isolate,
  { actor, envelope }: PendingMessage,
): Promise<void> | undefined {
  const paused = actor.step;
  if (paused) {
    // While a step waits, only its answers are handled.
    envelope.run!();
    // Other answers may wait behind this one, and no other event would offer them.
    if (paused.asks.size > 0) offer(isolate, actor);
    else if (paused.isSettled) conclude(isolate, actor, paused);
  } else begin(isolate, actor, envelope);
  const { step } = actor;
  if (!step || step.asks.size > 0) return undefined;
  return new Promise<void>((resolve) => {
    step.wake = resolve;
  });
}

function begin(isolate: Isolate, actor: Actor, envelope: PendingMessage["envelope"]): void {
  const { message, replyTo, timerKey } = envelope;
  const step: HandlingStep = {
    envelope,
    replyTo,
    isRefused: false,
    asks: new Set(),
    isSettled: false,
    isAbandoned: false,
    wake: undefined,
  };
  actor.step = step;
  actor.activity = "";
  if (replyTo) actor.pendingReplies.set(replyTo, true);
  const { subscription } = isolate;
  if (subscription?.slowStepMs !== undefined) {
    step.ends = timeStep(isolate, actor, step, subscription.slowStepMs);
  }
  // Its message no longer waits, so the timer cannot be cancelled any more.
  if (timerKey !== undefined) actor.timers.delete(timerKey);
  const { handlers } = actor, type = Object.hasOwn(handlers, message.type) ? message.type : OTHERS;
  if (!envelope.run && !handlers[type]) {
    const known = Object.keys(handlers).join(", ");
    const why = `its type must be one that "${actor.ref.id}" has a handler for (${known})`;
    // Its sender does not vouch for it, so it must not fail the actor.
    if (envelope.receipt) {
      refuse(isolate, actor, step, why);
      return settle(isolate, actor, step);
    }
    const error = new TypeError(`Cannot handle "${message.type}": ${why}`);
    return crash(isolate, actor, "unknown-message", error, step);
  }
  const kind = actor.state === "starting" ? "init" : "throw";
  try {
    const result = envelope.run ? envelope.run() : handlers[type]!(message);
    if (result === undefined) settle(isolate, actor, step);
    else {
      Promise.resolve(result).then(
        () => settle(isolate, actor, step),
        (error) => crash(isolate, actor, kind, error, step),
      );
    }
  } catch (error) {
    crash(isolate, actor, kind, error, step);
  }
}

/** Makes the current message a dead letter. See {@linkcode Context.refuse}. */
export function refuse(isolate: Isolate, actor: Actor, step: HandlingStep, why: string): void {
  const { replyTo, envelope: { from, message } } = step;
  if (replyTo) actor.pendingReplies.take(replyTo);
  step.isRefused = true;
  const letter = { from, to: actor.ref, message, replyTo };
  rejectMessage(isolate, letter, "malformed", undefined, why);
}

/** Notes the end of the handler. The step ends when all its questions are answered. */
function settle(isolate: Isolate, actor: Actor, step: HandlingStep): void {
  if (actor.step !== step) return;
  step.isSettled = true;
  if (step.asks.size === 0) conclude(isolate, actor, step);
}

function conclude(isolate: Isolate, actor: Actor, step: HandlingStep): void {
  const { replyTo, wake } = step;
  leaveStep(isolate, actor, step);
  if (replyTo && actor.pendingReplies.take(replyTo)) {
    answer(isolate, replyTo, { status: "unanswered" });
  }
  if (actor.state === "stopping") stopFurther(isolate, actor);
  else offer(isolate, actor);
  if (actor.isDraining) endIfDrained(isolate, actor);
  wake?.();
}

/** Handles an error of a handler. */
function crash(
  isolate: Isolate,
  actor: Actor,
  kind: Failure["kind"],
  error: unknown,
  step: HandlingStep,
): void {
  if (actor.step !== step) return;
  const failure = describeFailure(actor.ref.id, kind, error, describeStep(actor, step));
  if (excludeSender(isolate, failure, step)) return settle(isolate, actor, step);
  step.isSettled = true;
  if (!step.isAbandoned) fail(isolate, actor, failure);
  // A step that waited for answers has ended with its actor.
  if (actor.step) leaveStep(isolate, actor, step);
  stopFurther(isolate, actor);
  step.wake?.();
}

/** Excludes the host that sent the message of a step. Returns false if that host is trusted. */
function excludeSender(
  { env: { network } }: Isolate,
  { actor, kind, error }: Failure,
  { envelope: { from, message } }: HandlingStep,
): boolean {
  if (kind === "init" || !network?.exclude) return false;
  const why = `it has sent ${message.type.slice(0, 40)} to "${actor}": ${error.message}`;
  return network.exclude(from.isolate, why.slice(0, 300));
}

function leaveStep(isolate: Isolate, actor: Actor, step: HandlingStep): void {
  step.ends?.();
  if (!step.isRefused) sendReceipt(isolate, step.envelope.from, step.envelope.receipt);
  isolate.unwinding.delete(actor);
  actor.step = undefined;
}

/** Waits for one turn of the event loop. */
export function turn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

/** Maximum number of steps between two turns if many actors share an isolate. */
const MAX_STEPS = 1024;

/** Maximum milliseconds between two turns if many actors share an isolate. */
const MAX_MS = 4;

/** Read before a simulation can replace it: a system may still yield when a simulation begins. */
const realNow = performance.now.bind(performance);

/** Yields to the event loop at intervals: for an isolate whose messages are mostly local. */
export function relaxedPace(): () => Promise<void> | undefined {
  let steps = 0;
  let last = realNow();
  return () => {
    if (++steps < MAX_STEPS && realNow() - last < MAX_MS) return undefined;
    steps = 0;
    return turn().then(() => {
      last = realNow();
    });
  };
}
