/**
 * The mailbox: two lanes, each in order of arrival.
 *
 * [Note: FIFO and float order] A message never overtakes another of the same sender in the same
 * lane, whatever chooses the order otherwise. Gradients are added in the order they arrive, and
 * another order of float additions gives other bits, so this is part of the arithmetic.
 *
 * @module
 */

import { Ring } from "./ring.ts";
import type { Lane } from "../types.ts";
import type { Envelope } from "./envelope.ts";

/** Two lanes of envelopes, control before data. */
export class Mailbox {
  readonly #control = new Ring<Envelope>();
  readonly #data = new Ring<Envelope>();

  /** Messages that wait, in both lanes. */
  get length(): number {
    return this.#control.length + this.#data.length;
  }

  /** Adds an envelope at the end of its lane. */
  push(envelope: Envelope): void {
    this.#lane(envelope.lane).push(envelope);
  }

  /** What comes next in plain order: the oldest of the control lane, else of the data lane. */
  head(): Envelope | undefined {
    return this.#control.at(0) ?? this.#data.at(0);
  }

  /** All that may come next: the oldest envelope of each sender in each lane, oldest first. */
  heads(): Envelope[] {
    if (this.#control.length === 0) return oldestOfEachSender(this.#data);
    return [...oldestOfEachSender(this.#control), ...oldestOfEachSender(this.#data)];
  }

  /** All that waits: control, then data, each in order of arrival. */
  *[Symbol.iterator](): IterableIterator<Envelope> {
    yield* this.#control;
    yield* this.#data;
  }

  /** Takes an envelope out, and says whether it was there. */
  remove(envelope: Envelope): boolean {
    return this.#lane(envelope.lane).remove(envelope);
  }

  /** Takes everything out. */
  drain(): Envelope[] {
    const all = [...this];
    while (this.#control.shift());
    while (this.#data.shift());
    return all;
  }

  #lane(lane: Lane): Ring<Envelope> {
    return lane === "control" ? this.#control : this.#data;
  }
}

/** The front envelope of each sender in a queue. */
export function oldestOfEachSender(lane: Ring<Envelope>): Envelope[] {
  const heads: Envelope[] = [];
  for (let index = 0; index < lane.length; index++) {
    const envelope = lane.at(index)!, { isolate, serial } = envelope.from;
    // Few senders: a search of those found is faster than a set of their keys.
    if (heads.every(({ from }) => from.serial !== serial || from.isolate !== isolate)) {
      heads.push(envelope);
    }
  }
  return heads;
}
