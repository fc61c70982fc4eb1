/**
 * Watching: exactly one notice when an actor ends, however it ends.
 *
 * The isolate of the watched keeps only which isolates watch; each of those knows by whom and how
 * to tell them, as functions do not travel.
 *
 * @module
 */

import { type Actor, keyOf, SYSTEM_SERIAL } from "./actor.ts";
import { describeFailure, type Down } from "../failure.ts";
import { type Isolate, post } from "../isolate/isolate.ts";
import { assertRef } from "../messages.ts";
import type { ActorRef } from "../types.ts";

/** Calls `notify` once when `ref` ends, or soon when it has ended. */
export function watch(
  isolate: Isolate,
  ref: ActorRef,
  watcher: Actor | undefined,
  notify: (down: Down) => void,
): void {
  assertRef("watch", ref);
  if (ref.system !== isolate.env.system) {
    const error = new Error(`actor "${ref.id}" is of another system`);
    return notify({ ref, reason: describeFailure(ref.id, "exit", error) });
  }
  const reason = isolate.gone.get(ref.isolate);
  if (reason) return notify({ ref, reason });
  const key = keyOf(ref), watches = isolate.watches.get(key);
  watcher?.watching.add(key);
  if (watches) watches.push({ ref, watcher, notify });
  else {
    isolate.watches.set(key, [{ ref, watcher, notify }]);
    post(isolate, ref.isolate, { kind: "watch", ref, by: isolate.number });
  }
}

/** The actor that watches: what the owner of the system watches, the system does. */
function keeperOf({ actors }: Isolate, watcher: Actor | undefined): Actor | undefined {
  return watcher ?? actors.get(SYSTEM_SERIAL);
}

/** Whether `actor` watches the one with this key. */
export function isWatching(isolate: Isolate, actor: Actor, key: string): boolean {
  const watches = isolate.watches.get(key) ?? [];
  return watches.some(({ watcher }) => keeperOf(isolate, watcher) === actor);
}

/** Ends all that an actor watches. */
export function unwatchAll(isolate: Isolate, watcher: Actor): void {
  for (const key of watcher.watching) forget(isolate, key, watcher);
}

/** Takes one watcher from the watches of the actor with this key. */
function forget(isolate: Isolate, key: string, watcher: Actor): void {
  const watches = isolate.watches.get(key) ?? [];
  const others = watches.filter((one) => one.watcher !== watcher);
  if (others.length === watches.length) return;
  if (others.length > 0) isolate.watches.set(key, others);
  else {
    isolate.watches.delete(key);
    const { ref } = watches[0]!;
    post(isolate, ref.isolate, { kind: "unwatch", ref, by: isolate.number });
  }
}

/** Isolate `by` watches an actor of this one. */
export function addWatcher(isolate: Isolate, ref: ActorRef, by: number): void {
  const actor = isolate.actors.get(ref.serial);
  if (actor) actor.watchers.add(by);
  else {
    const reason = isolate.failures.get(ref.serial) ?? "stopped";
    post(isolate, by, { kind: "down", ref, reason });
  }
}

/** Tells all in this isolate who watch an actor that it has ended. */
export function announce(isolate: Isolate, down: Down): void {
  const key = keyOf(down.ref), watches = isolate.watches.get(key) ?? [];
  isolate.watches.delete(key);
  for (const { watcher, notify } of watches) {
    watcher?.watching.delete(key);
    const child = keeperOf(isolate, watcher)?.children.get(key);
    if (child) child.isTold = true;
    notify(down);
  }
}
