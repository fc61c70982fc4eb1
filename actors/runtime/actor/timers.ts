/**
 * Timers of an actor: each puts a message into its mailbox, and ends with it.
 *
 * @module
 */

import type { Actor, Timer } from "./actor.ts";
import { type Isolate, offer } from "../isolate/isolate.ts";
import { MAILBOX_CAPACITY } from "../context_api.ts";
import { admit } from "./lifecycle.ts";
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
  if (actor.timers.size >= MAILBOX_CAPACITY) {
    throw new RangeError(
      `Cannot start a timer: "${actor.ref.id}" must have at most ${MAILBOX_CAPACITY} of them, received one more`,
    );
  }
  const name = key ?? Symbol();
  const copy = snapshot(message);
  const timer: Timer = {
    cancel: isolate.env.clock.after(delayMs, () => {
      const contents = { from: actor.ref, message: copy, timerKey: key };
      timer.envelope = admit(isolate, actor, { lane: "control", ...contents });
      // With a key it stays while the message waits, so that another with the key replaces it.
      if (key === undefined) actor.timers.delete(name);
    }),
  };
  actor.timers.set(name, timer);
}

/** Withdraws a timer, and its message if that waits. */
function cancelTimer(isolate: Isolate, actor: Actor, key: string): void {
  const timer = actor.timers.get(key);
  if (!timer) return;
  actor.timers.delete(key);
  timer.cancel();
  if (timer.envelope && actor.mailbox.remove(timer.envelope)) offer(isolate, actor);
}
