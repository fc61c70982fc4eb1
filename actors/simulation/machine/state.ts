/**
 * The digest of a whole simulated system, for searches that must know where they have been.
 *
 * @module
 */

import { type Actor, keyOf } from "../../runtime/actor/actor.ts";
import type { Offers } from "../../runtime/mailbox/choose.ts";
import type { Isolate } from "../../runtime/isolate/isolate.ts";
import type { Envelope } from "../../runtime/mailbox/envelope.ts";
import { Digest } from "../digest.ts";
import type { VirtualClock } from "./virtual_clock.ts";

/**
 * Digest of what decides how a run goes on: states, queues, questions and timers.
 *
 * @throws {TypeError} when an actor does not expose its state.
 */
export function stateOf(isolate: Isolate, clock: VirtualClock, offers: Offers): number {
  const digest = new Digest();
  for (const actor of isolate.actors.values()) {
    if (!actor.parent) continue;
    digest.text(actor.ref.id).text(actor.state).value(exposed(actor));
    digest.text(actor.step?.envelope.message.type ?? "").word(actor.step?.asks.size ?? 0);
    addQueue(digest, [...actor.agenda, ...actor.mailbox], offers);
  }
  for (const { from, to, type } of isolate.asks.values()) {
    digest.text(from.id).text(to.id).text(type);
  }
  return digest.value(clock.remaining()).toNumber();
}

function exposed(actor: Actor): unknown {
  if (actor.expose || actor.state !== "ready") return actor.expose?.();
  throw new TypeError(
    `Cannot count states: "${actor.ref.id}" must call ctx.expose when it is made`,
  );
}

/** Where senders have queues of their own, the order between two of them decides nothing. */
function addQueue(digest: Digest, queue: readonly Envelope[], offers: Offers): void {
  const sorted = offers === "by-arrival" ? queue : queue.toSorted((a, b) => {
    const left = `${a.lane} ${keyOf(a.from)}`, right = `${b.lane} ${keyOf(b.from)}`;
    return left < right ? -1 : left > right ? 1 : a.seq - b.seq;
  });
  digest.word(sorted.length);
  for (const { lane, from, message } of sorted) digest.text(lane).text(from.id).value(message);
}

/** Who waits for a message that nobody is about to send, in words; for reports. */
export function describeIdle(isolate: Isolate): string[] {
  const idle: string[] = [];
  for (const { ref, parent, state, step, mailbox, timers, handlers } of isolate.actors.values()) {
    if (!parent || state !== "ready" || step || mailbox.head()) continue;
    if ([...timers.values()].some(({ envelope }) => !envelope)) continue;
    idle.push(`"${ref.id}" waits for a message (${Object.keys(handlers).join(", ")})`);
  }
  return idle;
}

/** Who waits for whom, in words; for reports. */
export function describeWaits(isolate: Isolate): string[] {
  const waits: string[] = [];
  for (const { from, to, type } of isolate.asks.values()) {
    const other = [...isolate.actors.values()].find(({ ref }) => keyOf(ref) === keyOf(to));
    const queue = other
      ? `${[...other.mailbox].length} messages wait there`
      : to.serial < 0
      ? "it is no actor"
      : "it is gone";
    waits.push(`"${from.id}" waits for "${to.id}" to answer "${type}"; ${queue}`);
  }
  for (const { ref, step } of isolate.actors.values()) {
    if (!step || step.isSettled || step.asks.size > 0) continue;
    waits.push(`"${ref.id}" has not ended "${step.envelope.message.type}"`);
  }
  return waits;
}
