/**
 * What follows when another isolate is gone.
 *
 * @module
 */

import { loseAsks } from "../actor/asks.ts";
import type { Reason } from "../failure.ts";
import { type Isolate, releaseId } from "./isolate.ts";
import { childEnded, stop } from "../actor/lifecycle.ts";
import { FIRST_SERIAL } from "./spawning.ts";
import type { ActorRef } from "../types.ts";
import { announce } from "../actor/watches.ts";

/**
 * Tells the actors of `isolate` that isolate `number` is gone: those who watch or asked an actor
 * there, its parent, and its children, which stop.
 *
 * @param reason how the first actor there ended.
 */
export function isolateGone(isolate: Isolate, number: number, reason: Reason): void {
  isolate.gone.set(number, reason);
  const lost = (ref: ActorRef): Reason =>
    reason === "stopped" || reason.kind !== "exit" ? reason : { ...reason, actor: ref.id };
  for (const key of [...isolate.watches.keys()]) {
    const ref = isolate.watches.get(key)?.[0]?.ref;
    if (ref?.isolate !== number) continue;
    announce(isolate, { ref, reason: lost(ref) });
  }
  loseAsks(isolate, number);
  for (const actor of [...isolate.actors.values()]) {
    for (const { ref } of [...actor.children.values()]) {
      if (ref.isolate !== number) continue;
      childEnded(isolate, actor, ref, lost(ref));
    }
    if (actor.parent?.isolate === number) stop(isolate, actor);
  }
}

/**
 * An actor has ended. If it was the first of another isolate it was the last there as well, and
 * what is sent there from now on would be lost: better a dead letter.
 */
export function noteEnd(isolate: Isolate, ref: ActorRef, reason: Reason): void {
  releaseId(isolate, ref);
  if (ref.isolate !== isolate.number && ref.serial === FIRST_SERIAL) {
    isolate.gone.set(ref.isolate, reason);
  }
}
