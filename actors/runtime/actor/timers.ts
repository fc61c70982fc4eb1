/**
 * Timers of an actor: each puts a message into its mailbox, and ends with it.
 *
 * @module
 */

import type { Actor, Timer } from "./actor.ts";
import { enqueue, type Isolate, offer } from "../isolate/isolate.ts";
import { assertMessage } from "../messages.ts";
import { snapshot } from "../snapshot.ts";
import type { Message } from "../types.ts";

/** Sends `message` to the actor after a delay. A timer with the same key is replaced. */
export function startTimer(
  isolate: Isolate,
  actor: Actor,
  delayMs: number,
  message: Message,
  key?: string,
): void {
  if (!(delayMs >= 0)) {
    throw new RangeError(`Cannot start a timer: delayMs must be 0 or more, received ${delayMs}`);
  }
  assertMessage("start a timer", message);
  if (actor.state === "stopping" || actor.isDraining) return;
  if (key !== undefined) cancelTimer(isolate, actor, key);
  const name = key ?? Symbol();
  const copy = snapshot(message);
  const timer: Timer = {
    cancel: isolate.env.clock.after(delayMs, () => {
      timer.envelope = enqueue(isolate, actor, {
        lane: "control",
        from: actor.ref,
        message: copy,
        timerKey: key,
      });
      // With a key it stays while the message waits, so that cancel finds it.
      if (key === undefined) actor.timers.delete(name);
    }),
  };
  actor.timers.set(name, timer);
}

/** Withdraws a timer, and its message if that waits. */
export function cancelTimer(isolate: Isolate, actor: Actor, key: string): void {
  const timer = actor.timers.get(key);
  if (!timer) return;
  actor.timers.delete(key);
  timer.cancel();
  if (timer.envelope && actor.mailbox.remove(timer.envelope)) offer(isolate, actor);
}

/** Ends all timers of an actor. */
export function cancelTimers(actor: Actor): void {
  for (const { cancel } of actor.timers.values()) cancel();
  actor.timers.clear();
}
