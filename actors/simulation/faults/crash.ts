/**
 * How an actor crashes in a simulation: as if what it lives in had died.
 *
 * @module
 */

import type { Actor } from "../../runtime/actor/actor.ts";
import type { Work } from "../../runtime/mailbox/choose.ts";
import { describeFailure } from "../../runtime/failure.ts";
import type { Isolate } from "../../runtime/isolate/isolate.ts";
import { fail } from "../../runtime/actor/lifecycle.ts";
import { named } from "../failure.ts";
import type { Frame } from "../../runtime/transports/wire.ts";

/** An actor that crashes in the middle of its handler: the rest of that is heard by nobody. */
export interface Dying {
  readonly actor: Actor;
  /** Messages and answers that still leave it. */
  left: number;
  /** Questions whose answers come too late. */
  readonly unanswered: number[];
}

/** Whether a frame comes from an actor that is dead by now; to be asked of each frame once. */
export function isFromDead(dying: Dying, frame: Frame): boolean {
  const isMessage = frame.kind === "message" && frame.from.serial === dying.actor.ref.serial;
  const isAnswer = frame.kind === "answer" && /^(un)?answered$/.test(frame.outcome.status);
  if (!isMessage && !isAnswer) return false;
  if (dying.left-- > 0) return false;
  if (isAnswer) dying.unanswered.push(frame.ask);
  return true;
}

/**
 * Ends an actor at once. A handler that waits for answers never goes on: it could send from beyond
 * the grave. Who asked the actor learns that it is gone, its children stop, and what it had
 * deferred is cleaned up, as that belongs to the test as well.
 */
export function kill(isolate: Isolate, { actor, envelope }: Work): void {
  if (actor.state === "stopping") return;
  const { step } = actor;
  for (const id of step?.asks ?? []) isolate.asks.take(id)?.cancel();
  step?.ends?.();
  actor.step = undefined;
  if (step?.envelope !== envelope && envelope.replyTo) actor.owed.set(envelope.replyTo, true);
  const error = named("InjectedCrash", `"${actor.ref.id}" was made to crash`);
  fail(isolate, actor, describeFailure(actor.ref.id, "exit", error));
}
