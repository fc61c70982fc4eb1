/**
 * Ends a system, or one of its actors.
 *
 * @module
 */

import type { Actor } from "./actor/actor.ts";
import { loseAsks } from "./actor/asks.ts";
import { endChild, stopNow } from "./actor/stopping.ts";
import { cancelTimers, stop } from "./actor/lifecycle.ts";
import type { Isolate } from "./isolate/isolate.ts";
import { isRef } from "./messages.ts";
import type { System, SystemStopOptions } from "./system_api.ts";
import type { ActorRef } from "./types.ts";

/**
 * Makes {@linkcode System.stop} of a system.
 *
 * @param self the system itself.
 * @param emptied resolved when the last actor has ended, or is left behind.
 * @param close ends the other isolates.
 */
export function openEnding(
  isolate: Isolate,
  self: Actor,
  emptied: PromiseWithResolvers<void>,
  close: () => Promise<void>,
): System["stop"] {
  let ended: Promise<void> | undefined, cancel: (() => void) | undefined;

  const hurry = () => {
    cancel ??= limit(isolate, () => {
      leaveBehind(isolate);
      emptied.resolve();
    });
    stopNow(isolate, self);
  };
  const drain = ({ signal }: SystemStopOptions) => {
    self.isDraining = true;
    stop(isolate, self);
    return onAbort(signal, hurry);
  };
  const endAll = async (options: SystemStopOptions) => {
    const forget = isDraining(options) ? drain(options) : hurry();
    await emptied.promise;
    forget?.();
    cancel?.();
    await close();
  };
  return (first: ActorRef | SystemStopOptions = {}, options: SystemStopOptions = {}) => {
    if (isRef(first)) return endOne(isolate, self, first, options);
    // Who is in a hurry now need not wait for what drains.
    if (ended && !isDraining(first)) hurry();
    return ended ??= endAll(first);
  };
}

async function endOne(
  isolate: Isolate,
  self: Actor,
  ref: ActorRef,
  options: SystemStopOptions,
): Promise<void> {
  const late = Promise.withResolvers<void>();
  let cancel: (() => void) | undefined;
  const hurry = () => {
    cancel ??= limit(isolate, late.resolve);
    return endChild(isolate, self, ref, false);
  };
  const forget = onAbort(options.signal, () => void hurry());
  const end = isDraining(options) ? endChild(isolate, self, ref, true) : hurry();
  await Promise.race([end, late.promise]);
  forget();
  cancel?.();
}

/** What has not ended after twice the grace is left behind. */
function limit({ env }: Isolate, late: () => void): () => void {
  return env.clock.after(2 * env.stopGraceMs, late);
}

/** Calls `run` when a signal aborts; returns what takes that back. */
function onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
  signal?.addEventListener("abort", run, { once: true });
  return () => signal?.removeEventListener("abort", run);
}

function isDraining({ drain = false, signal }: SystemStopOptions): boolean {
  return drain && !signal?.aborted;
}

/** Frees what holds the program when a handler of this isolate never ends. */
function leaveBehind(isolate: Isolate): void {
  for (const actor of isolate.actors.values()) {
    cancelTimers(actor);
    for (const { cancelKill } of actor.children.values()) cancelKill?.();
  }
  loseAsks(isolate);
}
