/**
 * Picks the next message. The order of a run is decided only here.
 *
 * @module
 */

import { type Actor, headOf, headsOf } from "./actor.ts";
import type { Envelope } from "./mailbox.ts";
import type { Candidate, Choose } from "./context.ts";

/** The next message, with the actor that handles it. */
export interface PendingMessage {
  readonly actor: Actor;
  readonly envelope: Envelope;
}

/** Picks the next message. */
export interface Picker {
  /** Must be called when the first message of an actor's queue may have changed. */
  changed(actor: Actor): void;
  /** True if anything has changed since the last call of `next`. */
  readonly hasChanged: boolean;
  /** Removes and returns the next message. */
  next(): PendingMessage | undefined;
}

/** Returns the order of an envelope as one number: control before data, then by age. */
function rank({ lane, seq }: Envelope): number {
  return lane === "control" ? seq : seq + 2 ** 52;
}

function take(actor: Actor, envelope: Envelope): PendingMessage {
  if (!actor.agenda.remove(envelope)) actor.mailbox.remove(envelope);
  return { actor, envelope };
}

/** Picks in FIFO order with a binary heap of the first envelopes of all actors. Outdated entries
 * are dropped when they reach the top, so entries are never searched for. */
export function fifoPicker(): Picker {
  const heap: { rank: number; actor: Actor; envelope: Envelope }[] = [];

  function push(entry: (typeof heap)[number]): void {
    let index = heap.push(entry) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (heap[parent]!.rank <= entry.rank) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = entry;
  }

  function pop(): (typeof heap)[number] | undefined {
    const top = heap[0], last = heap.pop();
    if (heap.length === 0 || !last) return last;
    let index = 0;
    for (let child = 1; child < heap.length; child = 2 * index + 1) {
      if (child + 1 < heap.length && heap[child + 1]!.rank < heap[child]!.rank) child++;
      if (heap[child]!.rank >= last.rank) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = last;
    return top;
  }

  return {
    changed(actor) {
      const envelope = headOf(actor);
      if (!envelope || actor.offered === envelope) return;
      actor.offered = envelope;
      push({ rank: rank(envelope), actor, envelope });
    },
    get hasChanged() {
      return heap.length > 0;
    },
    next() {
      for (let top = pop(); top; top = pop()) {
        const { actor, envelope } = top;
        if (actor.offered === envelope) actor.offered = undefined;
        if (headOf(actor) === envelope) return take(actor, envelope);
      }
      return undefined;
    },
  };
}

/** Candidates of an actor: the oldest message of each sender in each lane, or (`by-arrival`) only
 * the first in FIFO order. */
export type Offers = "by-sender" | "by-arrival";

/** A candidate, with its envelope and rank. */
interface Offer extends Candidate {
  readonly rank: number;
  readonly work: PendingMessage;
}

/**
 * Picks with a `choose` function. Candidates are kept between steps, and only those of changed
 * actors are rebuilt.
 *
 * @throws {RangeError} (from `next`) if the choice is not the index of a candidate.
 */
export function choosingPicker(choose: Choose, offers: Offers = "by-sender"): Picker {
  const changed = new Set<Actor>();
  let candidates: readonly Offer[] = [];

  function update(): void {
    if (changed.size === 0) return;
    const next = candidates.filter(({ work }) => !changed.has(work.actor));
    for (const actor of changed) {
      for (const envelope of offered(actor, offers)) insert(next, offerOf(actor, envelope));
    }
    changed.clear();
    candidates = next;
  }

  return {
    changed: (actor) => void changed.add(actor),
    get hasChanged() {
      return changed.size > 0;
    },
    next() {
      update();
      if (candidates.length === 0) return undefined;
      const index = choose(candidates);
      if (index === NONE_YET) return undefined;
      const work = candidates[index]?.work;
      if (!work) {
        throw new RangeError(
          `Cannot pick a message: the choice must be an integer from 0 to ` +
            `${candidates.length - 1}, received ${index}`,
        );
      }
      changed.add(work.actor);
      return take(work.actor, work.envelope);
    },
  };
}

/** A choice that picks no message and leaves all candidates in place. */
export const NONE_YET = -1;

function offered(actor: Actor, offers: Offers): readonly Envelope[] {
  if (offers === "by-sender") return headsOf(actor);
  const head = headOf(actor);
  return head ? [head] : [];
}

function offerOf(actor: Actor, envelope: Envelope): Offer {
  const { lane, from, message: { type }, seq, nth } = envelope;
  const work = { actor, envelope };
  return { actor: actor.ref.id, lane, from: from.id, type, seq, nth, rank: rank(envelope), work };
}

/** Inserts an offer by rank. New offers are usually near the end. */
function insert(offers: Offer[], offer: Offer): void {
  let index = offers.length;
  while (index > 0 && offers[index - 1]!.rank > offer.rank) index--;
  offers.splice(index, 0, offer);
}
