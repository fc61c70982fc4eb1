/**
 * The way of a message from one actor to another, on which it may be lost or doubled.
 *
 * What the scenario sends and asks, what an actor sends itself, and what the runtime tells (that an
 * actor is down) always arrives.
 *
 * @module
 */

import type { Isolate } from "../../runtime/isolate/isolate.ts";
import { snapshot } from "../../runtime/snapshot.ts";
import type { Frame } from "../../runtime/transports/wire.ts";
import type { ActorRef } from "../../runtime/types.ts";
import type { Fault } from "./faults.ts";

/** The ends of the way of a frame. */
interface Ends {
  readonly from: ActorRef;
  readonly to: ActorRef;
}

/** Who sends a frame to whom, if both are actors and it may be lost. */
export function endsOf(isolate: Isolate, frame: Frame): Ends | undefined {
  const ends = frame.kind === "message" ? frame : answerEnds(isolate, frame);
  if (!ends || ends.from.serial === ends.to.serial) return undefined;
  // The actor without a parent is the scenario's own.
  const known = [ends.from, ends.to].map(({ serial }) => isolate.actors.get(serial));
  return known.some((actor) => actor && !actor.parent) ? undefined : ends;
}

function answerEnds(isolate: Isolate, frame: Frame): Ends | undefined {
  if (frame.kind !== "answer" || frame.outcome.status === "gone") return undefined;
  const pending = isolate.asks.get(frame.ask);
  return pending?.asker && { from: pending.to, to: pending.from };
}

/** Delivers a frame as often, and as late, as a fault says. */
export function deliverWith(
  fault: Fault | undefined,
  frame: Frame,
  deliver: (frame: Frame) => void,
  after: (delayMs: number, fire: () => void) => void,
): void {
  if (fault?.kind === "loss") return;
  // Copied before anybody can change or transfer what the message holds.
  // A copy is a question of its own for whoever answers it; only the first answer arrives.
  const copy = fault && snapshot(frame);
  deliver(frame);
  if (!copy) return;
  if (fault.forMs === undefined) deliver(copy);
  else after(fault.forMs, () => deliver(copy));
}
