/**
 * How an actor ends.
 *
 * It leaves in four moves, and nothing overtakes: it takes no more messages, its children end one
 * by one (the last spawned first), its cleanups run (the last registered first), and then those
 * who watch it and its parent are told.
 *
 * @module
 */

import { type Actor, keyOf } from "./actor.ts";
import type { Envelope, Step } from "../mailbox/envelope.ts";
import type { Mailbox } from "../mailbox/mailbox.ts";
import { abandonAsks, answer } from "./asks.ts";
import { describeFailure, type Failure, goneFailure, type Reason } from "../failure.ts";
import {
  type Contents,
  enqueue,
  giveReceipt,
  type Isolate,
  post,
  releaseId,
  schedule,
} from "../isolate/isolate.ts";
import { bury } from "../isolate/sending.ts";
import { assertMessage } from "../messages.ts";
import type { ActorRef } from "../types.ts";
import { isWatching, unwatchAll } from "./watches.ts";

/** Failures kept for those who watch an actor after its end. */
const MAX_FAILURES = 1000;

/** Ends an actor because of a failure; at the top of the tree, reports it. */
export function fail(isolate: Isolate, actor: Actor, failure: Failure): void {
  if (!actor.parent) isolate.env.onFailure(failure);
  else if (actor.state !== "stopping") stop(isolate, actor, failure);
  else if (actor.reason === "stopped") actor.reason = failure;
}

/**
 * Puts a message at the end of an actor's lane: one of another actor, of a timer, the notice of an end
 * or a sum. One more than may wait is a broken invariant and ends the actor.
 *
 * @returns undefined where there is no room.
 */
export function admit(isolate: Isolate, actor: Actor, contents: Contents): Envelope | undefined {
  const { ref: { id }, mailbox, capacity } = actor, { from, lane, message: { type } } = contents;
  if (mailbox.length < capacity) return enqueue(isolate, actor, contents);
  const error = new RangeError(
    `Cannot enqueue "${type}" of "${from.id}": the mailbox of "${id}" must hold at most ${capacity} ` +
      `messages, received one more in the ${lane} lane behind ${mostFrequent(mailbox)}`,
  );
  fail(isolate, actor, describeFailure(id, "mailbox-overflow", error));
}

/** Admits a message that the actor itself makes of what the runtime has for it. */
export function tell(
  isolate: Isolate,
  actor: Actor,
  handling: string,
  make: () => Contents,
): void {
  if (actor.state === "stopping" || actor.isDraining) return;
  try {
    const contents = make();
    assertMessage(`tell of the ${handling}`, contents.message);
    admit(isolate, actor, contents);
  } catch (error) {
    fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, handling));
  }
}

/** The three senders with the most messages that wait, each with its lane. */
function mostFrequent(mailbox: Mailbox): string {
  const senders = Map.groupBy(mailbox, ({ from, lane }) => `"${from.id}" (${lane})`);
  return [...senders].sort(([, a], [, b]) => b.length - a.length).slice(0, 3)
    .map(([sender, { length }]) => `${length} of ${sender}`).join(", ");
}

/** Ends all timers of an actor. */
export function cancelTimers(actor: Actor): void {
  for (const { cancel } of actor.timers.values()) cancel();
  actor.timers.clear();
}

/** Makes an actor end, after the step it is in. */
export function stop(isolate: Isolate, actor: Actor, reason: Reason = "stopped"): void {
  if (actor.state === "stopping") return;
  actor.state = "stopping";
  actor.reason = reason;
  cancelTimers(actor);
  for (const envelope of actor.mailbox.drain()) {
    bury(isolate, { to: actor.ref, ...envelope }, "stopped", reason);
  }
  if (actor.step) abandonStep(isolate, actor, actor.step);
  while (actor.agenda.shift());
  isolate.picker.changed(actor);
  stopFurther(isolate, actor);
}

/** Ends the waiting of a suspended step; one that is at work goes on to its end. */
function abandonStep(isolate: Isolate, actor: Actor, step: Step): void {
  if (step.asks.size > 0) {
    step.isAbandoned = true;
    abandonAsks(isolate, actor, step);
  }
  if (step.isSettled) {
    step.ends?.();
    giveReceipt(isolate, step.envelope.from, step.envelope.receipt);
    actor.step = undefined;
  } else if (step.isAbandoned) isolate.unwinding.add(actor);
}

/** Does the next thing towards the end of an actor that is to stop. */
export function stopFurther(isolate: Isolate, actor: Actor): void {
  if (actor.state !== "stopping" || actor.step || actor.isFinishing) return;
  const youngest = [...actor.children.values()].at(-1);
  if (youngest) return stopChild(isolate, actor, keyOf(youngest.ref), actor.isDraining);
  actor.isFinishing = true;
  schedule(isolate, actor, { type: "finish" }, actor.ref, () => finish(isolate, actor));
}

/** Makes a child stop, or drain first; one elsewhere that only has to stop may not take for ever. */
export function stopChild(isolate: Isolate, parent: Actor, key: string, drain: boolean): void {
  const child = parent.children.get(key)!;
  const { ref } = child, { env } = isolate;
  if (ref.isolate !== isolate.number && !drain && !child.cancelKill) {
    const why = `it did not stop within ${env.stopGraceMs} ms`;
    child.cancelKill = env.clock.after(
      env.stopGraceMs,
      () => env.network?.kill(ref.isolate, why),
    );
  }
  post(isolate, ref.isolate, { kind: "stop", ref, drain });
}

function finish(isolate: Isolate, actor: Actor): void | Promise<void> {
  if (actor.cleanups.length === 0) return leave(isolate, actor);
  return cleanUp(actor).then(() => leave(isolate, actor));
}

async function cleanUp(actor: Actor): Promise<void> {
  for (let cleanup = actor.cleanups.pop(); cleanup; cleanup = actor.cleanups.pop()) {
    try {
      await cleanup();
    } catch (error) {
      const failure = describeFailure(actor.ref.id, "throw", error, "cleanup");
      if (actor.reason === "stopped") actor.reason = failure;
    }
  }
}

function leave(isolate: Isolate, actor: Actor): void {
  const { ref, parent, reason, watchers, owed } = actor;
  isolate.actors.delete(ref.serial);
  if (isolate.actors.size === 0) {
    // Who hears of the end may end the isolate at once, so what is observed must be whole before.
    isolate.observer?.ends(actor);
    isolate.observer?.closes();
    isolate.observer = undefined;
  }
  releaseId(isolate, ref);
  unwatchAll(isolate, actor);
  if (reason !== "stopped") remember(isolate, ref.serial, reason);
  // An error with its stack costs more than all else here, so it is made only when needed.
  for (const [replyTo] of owed) {
    answer(isolate, replyTo, { status: "gone", failure: goneFailure(ref.id, reason) });
  }
  for (const by of watchers) post(isolate, by, { kind: "down", ref, reason });
  if (parent) {
    post(isolate, parent.isolate, { kind: "ended", parent, child: ref, reason });
  }
  if (isolate.actors.size === 0) isolate.env.onEmpty(reason);
}

function remember(isolate: Isolate, serial: number, failure: Failure): void {
  const { failures } = isolate;
  failures.set(serial, failure);
  if (failures.size > MAX_FAILURES) failures.delete(failures.keys().next().value!);
}

/** A child of `parent` has ended. A failure that the parent does not watch becomes its own: that
 * somebody else does is no concern of the parent's. */
export function childEnded(
  isolate: Isolate,
  parent: Actor,
  ref: ActorRef,
  reason: Reason,
): void {
  const key = keyOf(ref), child = parent.children.get(key);
  if (!child) return;
  parent.children.delete(key);
  child.cancelKill?.();
  releaseId(isolate, ref);
  child.ended?.resolve();
  // A watch may also have been on its way when a child elsewhere failed.
  const isTold = child.isTold || isWatching(isolate, parent, key);
  if (reason !== "stopped" && !isTold) fail(isolate, parent, reason);
  stopFurther(isolate, parent);
}
