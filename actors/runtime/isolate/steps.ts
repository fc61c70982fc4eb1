/**
 * The receive-dispatch loop: takes the next message and lets its actor handle it, step by step.
 *
 * @module
 */

import { type Actor, describeStep } from "../actor/actor.ts";
import type { Step } from "../mailbox/envelope.ts";
import { answer } from "../actor/asks.ts";
import type { Work } from "../mailbox/choose.ts";
import { describeFailure, type Failure } from "../failure.ts";
import { OTHERS } from "../handlers.ts";
import { bury } from "./sending.ts";
import { timeStep } from "./slow_steps.ts";
import { giveReceipt, type Isolate, offer } from "./isolate.ts";
import { fail, stopFurther } from "../actor/lifecycle.ts";
import { endIfDrained } from "../actor/stopping.ts";

/** Runs steps until nobody can do anything. */
export async function run(isolate: Isolate): Promise<void> {
  const { env, picker } = isolate;
  try {
    for (;;) {
      const work = picker.next();
      if (work) {
        const { actor, envelope } = work;
        isolate.observer?.begins(actor, envelope, env.clock.now());
        const ended = dispatch(isolate, work);
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
    // Handlers cannot get here: this is a choice that is none, or a fault of the runtime.
    env.onFailure(describeFailure("system", "throw", error));
  }
  isolate.isRunning = false;
}

/** Begins or resumes a step, and promises its end or its next pause if that is not now. */
export function dispatch(isolate: Isolate, { actor, envelope }: Work): Promise<void> | undefined {
  const paused = actor.step;
  if (paused) {
    // While a step waits, only its answers are handled.
    envelope.run!();
    // Other answers may wait behind this one: nothing else would offer them.
    if (paused.asks.size > 0) offer(isolate, actor);
    else if (paused.isSettled) conclude(isolate, actor, paused);
  } else begin(isolate, actor, envelope);
  const { step } = actor;
  if (!step || step.asks.size > 0) return undefined;
  return new Promise<void>((resolve) => {
    step.wake = resolve;
  });
}

function begin(isolate: Isolate, actor: Actor, envelope: Work["envelope"]): void {
  const { message, replyTo, timerKey } = envelope;
  const step: Step = {
    envelope,
    replyTo,
    isRefused: false,
    asks: new Set(),
    isSettled: false,
    isAbandoned: false,
    wake: undefined,
  };
  actor.step = step;
  actor.doing = "";
  if (replyTo) actor.owed.set(replyTo, true);
  const { subscription } = isolate;
  if (subscription?.slowStepMs !== undefined) {
    step.ends = timeStep(isolate, actor, step, subscription.slowStepMs);
  }
  // It waits no longer, so there is nothing left to cancel.
  if (timerKey !== undefined) actor.timers.delete(timerKey);
  const { handlers } = actor, type = Object.hasOwn(handlers, message.type) ? message.type : OTHERS;
  if (!envelope.run && !handlers[type]) {
    const why = unknownType(actor);
    // Its sender does not vouch for it, so it must not make an actor fail.
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

/** Makes a message that is handled a dead letter. See {@linkcode Context.refuse}. */
export function refuse(isolate: Isolate, actor: Actor, step: Step, why: string): void {
  const { replyTo, envelope: { from, message } } = step;
  if (replyTo) actor.owed.take(replyTo);
  step.isRefused = true;
  const letter = { from, to: actor.ref, message, replyTo };
  bury(isolate, letter, "malformed", undefined, { status: "unsent", why });
}

function unknownType({ ref, handlers }: Actor): string {
  const known = Object.keys(handlers).join(", ");
  return `its type must be one that "${ref.id}" has a handler for (${known})`;
}

/** The handler has ended; the step ends when all it asked is answered. */
function settle(isolate: Isolate, actor: Actor, step: Step): void {
  if (actor.step !== step) return;
  step.isSettled = true;
  if (step.asks.size === 0) conclude(isolate, actor, step);
}

function conclude(isolate: Isolate, actor: Actor, step: Step): void {
  const { replyTo, wake } = step;
  leaveStep(isolate, actor, step);
  if (replyTo && actor.owed.take(replyTo)) answer(isolate, replyTo, { status: "unanswered" });
  if (actor.state === "stopping") stopFurther(isolate, actor);
  else offer(isolate, actor);
  if (actor.isDraining) endIfDrained(isolate, actor);
  wake?.();
}

/** The handler has thrown. */
function crash(
  isolate: Isolate,
  actor: Actor,
  kind: Failure["kind"],
  error: unknown,
  step: Step,
): void {
  if (actor.step !== step) return;
  step.isSettled = true;
  if (!step.isAbandoned) {
    fail(isolate, actor, describeFailure(actor.ref.id, kind, error, describeStep(actor, step)));
  }
  // A step that waited for answers has ended with its actor.
  if (actor.step) leaveStep(isolate, actor, step);
  stopFurther(isolate, actor);
  step.wake?.();
}

function leaveStep(isolate: Isolate, actor: Actor, step: Step): void {
  step.ends?.();
  if (!step.isRefused) giveReceipt(isolate, step.envelope.from, step.envelope.receipt);
  isolate.unwinding.delete(actor);
  actor.step = undefined;
}
