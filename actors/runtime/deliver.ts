/**
 * Handles the frames that an isolate receives.
 *
 * @module
 */

import { failAsks, settleAsk, withdraw } from "./asks.ts";
import type { Reason } from "./failure.ts";
import {
  type Isolate,
  post,
  rejectMessage,
  releaseId,
  reportDeadLetter,
  subscribe,
} from "./isolate.ts";
import {
  addWatcher,
  admit,
  childEnded,
  drain,
  notifyWatchers,
  stop,
  stopNow,
} from "./lifecycle.ts";
import { FIRST_SERIAL, launch } from "./spawning.ts";
import { type ActorRef, isMessage } from "./types.ts";
import type { Frame, MessageFrame, SwitchFrame } from "./wire.ts";

/**
 * Notifies the actors of `isolate` that isolate `number` is gone: watchers and askers of actors
 * there, its parent, and its children, which stop.
 *
 * @param reason the reason why its first actor ended.
 */
export function isolateGone(isolate: Isolate, number: number, reason: Reason): void {
  isolate.gone.set(number, reason);
  const lost = (ref: ActorRef): Reason =>
    reason === "stopped" || reason.kind !== "exit" ? reason : { ...reason, actor: ref.id };
  for (const key of [...isolate.watches.keys()]) {
    const ref = isolate.watches.get(key)?.[0]?.ref;
    if (ref?.isolate !== number) continue;
    notifyWatchers(isolate, { ref, reason: lost(ref) });
  }
  failAsks(isolate, number);
  for (const actor of [...isolate.actors.values()]) {
    for (const { ref } of [...actor.children.values()]) {
      if (ref.isolate !== number) continue;
      childEnded(isolate, actor, ref, lost(ref));
    }
    if (actor.parent?.isolate === number) stop(isolate, actor);
  }
}

/**
 * Notes the end of an actor. If it was the first actor of another isolate, no actor is left there,
 * so the isolate counts as gone and later messages to it become dead letters.
 */
function noteEnd(isolate: Isolate, ref: ActorRef, reason: Reason): void {
  releaseId(isolate, ref);
  if (ref.isolate !== isolate.number && ref.serial === FIRST_SERIAL) {
    isolate.gone.set(ref.isolate, reason);
  }
}

/** Handles a frame for this isolate. */
export function deliver(isolate: Isolate, frame: Frame): void {
  switch (frame.kind) {
    case "message":
      return deliverMessage(isolate, frame);
    case "answer":
      // A host that is not trusted may answer questions to others.
      if ((isolate.asks.get(frame.ask)?.to.isolate ?? frame.from) !== frame.from) return;
      return settleAsk(isolate, frame.ask, frame.outcome, frame.letter);
    case "withdraw":
      return withdraw(isolate, isolate.actors.get(frame.to.serial), frame.question);
    case "launch":
      return launch(isolate, frame);
    case "watch":
      return addWatcher(isolate, frame.ref, frame.by);
    case "down":
      noteEnd(isolate, frame.ref, frame.reason);
      return notifyWatchers(isolate, { ref: frame.ref, reason: frame.reason });
    case "stop": {
      const actor = isolate.actors.get(frame.ref.serial);
      // The system itself can be stopped only by its owner.
      if (!actor?.parent) return;
      return frame.drain ? drain(isolate, actor) : stopNow(isolate, actor);
    }
    case "receipt": {
      const { to: from, message } = frame, actor = isolate.actors.get(from.serial);
      if (!actor || !isMessage(message) || actor.state === "stopping" || actor.isDraining) return;
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
  if (!isMessage(frame.message)) {
    // Only own properties of records and instances are copied.
    const why = "a message must be a record with a type that is copied with it";
    return rejectMessage(isolate, frame, "malformed", undefined, why);
  }
  const actor = isolate.actors.get(to.serial);
  if (!actor) {
    const reason = to.serial < isolate.nextSerial ? "stopped" : "no-such-actor";
    return rejectMessage(isolate, frame, reason, isolate.failures.get(to.serial));
  }
  if (actor.state === "stopping" || actor.isDraining) {
    return rejectMessage(isolate, frame, "stopped", actor.reason);
  }
  // Its sender does not vouch for it, so it must not fail the actor.
  if (frame.receipt && actor.mailbox.length >= actor.capacity / 2) {
    const why = `the mailbox of "${to.id}" must have room for it`;
    return rejectMessage(isolate, frame, "no-room", undefined, why);
  }
  if (!admit(isolate, actor, frame)) rejectMessage(isolate, frame, "stopped", actor.reason);
}

/**
 * Makes a frame a dead letter if it contains a message or an answer, and notifies the isolate that waits
 * for a result.
 *
 * @param to the isolate that would get it.
 * @param why the reason why it cannot be sent. Absent: its isolate has never existed.
 */
export function rejectFrame(
  isolate: Isolate,
  to: number,
  frame: Frame | SwitchFrame,
  why?: string,
): void {
  const reason = why === undefined ? "no-such-actor" : "not-cloneable";
  const unsent = why === undefined ? undefined : { status: "unsent", why } as const;
  if (frame.kind === "message") rejectMessage(isolate, frame, reason, undefined, why);
  if (frame.kind === "watch") {
    post(isolate, frame.by, { kind: "down", ref: frame.ref, reason: "stopped" });
  }
  if (frame.kind !== "answer") return;
  if (frame.letter) reportDeadLetter(isolate, { ...frame.letter, reason }, undefined);
  if (unsent) post(isolate, to, { ...frame, outcome: unsent, letter: undefined });
}
