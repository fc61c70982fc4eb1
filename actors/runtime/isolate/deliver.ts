/**
 * What an isolate does with a frame.
 *
 * @module
 */

import { settleAsk, takeBack } from "../actor/asks.ts";
import { noteEnd } from "./gone.ts";
import type { Isolate } from "./isolate.ts";
import { admit, childEnded } from "../actor/lifecycle.ts";
import { drain, stopNow } from "../actor/stopping.ts";
import { bury } from "./sending.ts";
import { subscribe } from "./subscription.ts";
import { launch } from "./spawning.ts";
import type { Frame, MessageFrame } from "../transports/wire.ts";
import { addWatcher, announce } from "../actor/watches.ts";

/** Handles a frame for this isolate. */
export function deliver(isolate: Isolate, frame: Frame): void {
  switch (frame.kind) {
    case "message":
      return deliverMessage(isolate, frame);
    case "answer":
      return settleAsk(isolate, frame.ask, frame.outcome, frame.letter);
    case "withdraw":
      return takeBack(isolate, isolate.actors.get(frame.to.serial), frame.question);
    case "launch":
      return launch(isolate, frame);
    case "watch":
      return addWatcher(isolate, frame.ref, frame.by);
    case "unwatch":
      return void isolate.actors.get(frame.ref.serial)?.watchers.delete(frame.by);
    case "down":
      noteEnd(isolate, frame.ref, frame.reason);
      return announce(isolate, { ref: frame.ref, reason: frame.reason });
    case "stop": {
      const actor = isolate.actors.get(frame.ref.serial);
      // Only its owner ends the system itself.
      if (!actor?.parent) return;
      return frame.drain ? drain(isolate, actor) : stopNow(isolate, actor);
    }
    case "receipt": {
      const { to: from, message } = frame, actor = isolate.actors.get(from.serial);
      if (!actor || actor.state === "stopping" || actor.isDraining) return;
      return void admit(isolate, actor, { lane: "control", from, message });
    }
    case "event":
      return isolate.env.onEvent?.(frame.event);
    case "subscribe":
      return subscribe(isolate, frame.subscription);
    case "ended": {
      noteEnd(isolate, frame.child, frame.reason);
      const parent = isolate.actors.get(frame.parent.serial);
      return parent && childEnded(isolate, parent, frame.child, frame.reason);
    }
  }
}

function deliverMessage(isolate: Isolate, frame: MessageFrame): void {
  const { to } = frame;
  const actor = isolate.actors.get(to.serial);
  if (!actor) {
    const reason = to.serial < isolate.nextSerial ? "stopped" : "no-such-actor";
    return bury(isolate, frame, reason, isolate.failures.get(to.serial));
  }
  if (actor.state === "stopping" || actor.isDraining) {
    return bury(isolate, frame, "stopped", actor.reason);
  }
  // Its sender does not vouch for it, so it must not make an actor fail.
  if (frame.receipt && actor.mailbox.length >= actor.capacity / 2) {
    const why = `the mailbox of "${to.id}" must have room for it`;
    return bury(isolate, frame, "no-room", undefined, { status: "unsent", why });
  }
  if (!admit(isolate, actor, frame)) bury(isolate, frame, "stopped", actor.reason);
}
