/**
 * How an actor is made to stop by others: at once, or when it has handled what has arrived.
 *
 * @module
 */

import { type Actor, keyOf } from "./actor.ts";
import type { StopOptions } from "../context_api.ts";
import { type Isolate, post } from "../isolate/isolate.ts";
import { assertRef } from "../messages.ts";
import type { ActorRef } from "../types.ts";
import { cancelTimers, stop, stopChild, stopFurther } from "./lifecycle.ts";

/** Makes `ref` stop in the name of `by`. See {@linkcode Context.stop}. */
export function stopOther(
  isolate: Isolate,
  by: Actor,
  ref: ActorRef,
  { drain = false }: StopOptions = {},
): void {
  assertRef("stop", ref);
  if (ref.system !== isolate.env.system) return;
  const key = keyOf(ref);
  if (by.children.has(key)) stopChild(isolate, by, key, drain);
  else post(isolate, ref.isolate, { kind: "stop", ref, drain });
}

/** Lets an actor handle what has arrived and then end; what comes later becomes dead letters. */
export function drain(isolate: Isolate, actor: Actor): void {
  if (actor.state === "stopping" || actor.isDraining) return;
  actor.isDraining = true;
  cancelTimers(actor);
  endIfDrained(isolate, actor);
}

/** Ends an actor that drains and has nothing left to handle. */
export function endIfDrained(isolate: Isolate, actor: Actor): void {
  const { isDraining, state, step, mailbox } = actor;
  if (isDraining && state === "ready" && !step && mailbox.length === 0) stop(isolate, actor);
}

/** Ends an actor, and the draining of it and of those below it. */
export function stopNow(isolate: Isolate, actor: Actor): void {
  const wasDraining = actor.isDraining;
  actor.isDraining = false;
  if (actor.state !== "stopping") stop(isolate, actor);
  else if (wasDraining) stopFurther(isolate, actor);
}

/** Ends a child of an actor that goes on; resolves when its id may be given again. */
export async function endChild(
  isolate: Isolate,
  parent: Actor,
  ref: ActorRef,
  drain: boolean,
): Promise<void> {
  const key = keyOf(ref), child = parent.children.get(key);
  if (!child || ref.system !== isolate.env.system) return;
  child.ended ??= Promise.withResolvers();
  stopChild(isolate, parent, key, drain);
  await child.ended.promise;
}
