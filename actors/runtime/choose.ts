/**
 * Which message is handled next: the one place where the order of a run is decided.
 *
 * @module
 */

import { type Actor, headOf, headsOf } from "./actor.ts";
import type { Envelope } from "./mailbox.ts";
import type { Candidate, Choose } from "./context.ts";

/** A message and the actor that is to handle it now. */
export interface PendingMessage {
  readonly actor: Actor;
  readonly envelope: Envelope;
}

/** Finds the next message. */
export interface Picker {
  /** Must be called when the head of an actor's queue may have become another. */
  changed(actor: Actor): void;
  /** Whether anything has changed since the last call of `next`. */
  readonly hasChanged: boolean;
  /** Takes the next message out of its queue. */
  next(): PendingMessage | undefined;
}

/** Control before data, then by age, as one number. */
function rank({ lane, seq }: Envelope): number {
  return lane === "control" ? seq : seq + 2 ** 52;
}

function take(actor: Actor, envelope: Envelope): PendingMessage {
  if (!actor.agenda.remove(envelope)) actor.mailbox.remove(envelope);
  return { actor, envelope };
}

/** Plain order, by a binary heap of the actors' heads. Entries whose head is no longer the
 * actor's are dropped when they come up, so nothing is ever searched for. */
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

/** What an actor offers: the oldest of each sender in each lane, or (as by arrival) only the one
 * that plain order would take. */
export type Offers = "by-sender" | "by-arrival";

/** A candidate and what it stands for. */
interface Offer extends Candidate {
  readonly rank: number;
  readonly work: PendingMessage;
}

/**
 * The order that `choose` picks. Candidates are kept from step to step; only those of actors that
 * changed are made again.
 *
 * @throws {RangeError} (from `next`) when the choice is not the index of a candidate.
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

/** A choice that leaves all candidates where they are, as if there were none. */
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

/** Puts an offer in its place; a new one belongs near the end. */
function insert(offers: Offer[], offer: Offer): void {
  let index = offers.length;
  while (index > 0 && offers[index - 1]!.rank > offer.rank) index--;
  offers.splice(index, 0, offer);
}
