/**
 * The mailbox: three lanes, each in order of arrival.
 *
 * [Note: FIFO and float order] A message never overtakes another of the same sender in the same
 * lane, with any choice of order. Gradients are added in order of arrival, and another order of
 * float additions gives other bits, so this order is part of the arithmetic.
 *
 * @module
 */

import type { ActorRef, Lane, Message } from "./types.ts";

/** The destination of an answer: a question of an isolate. */
export interface ReplyTo {
  readonly isolate: number;
  readonly ask: number;
}

/** A message in a mailbox. */
export interface Envelope {
  /** Position in the order of all envelopes of this isolate: a lower one is older. */
  readonly seq: number;
  /** Number of earlier messages from this sender to this actor: it depends on the sender alone.
   * 0 without a `choose` function and without an observer. */
  readonly nth: number;
  readonly lane: Lane;
  readonly from: ActorRef;
  readonly message: Message;
  /** Set when the sender waits for an answer. */
  readonly replyTo?: ReplyTo | undefined;
  /** Set on the message of a timer that has a key. */
  readonly timerKey?: string | undefined;
  /** Set if the sender does not vouch for it: see {@linkcode SendOptions.receipt}. */
  readonly receipt?: Message | undefined;
  /** Set on work of the runtime (start, resume, finish). */
  readonly run?: () => void | Promise<void>;
}

/** A step that has begun: one message, handled to completion. */
export interface HandlingStep {
  readonly envelope: Envelope;
  /** Questions of this step without an answer yet. */
  readonly asks: Set<number>;
  /** The handler has ended. */
  isSettled: boolean;
  /** The actor has stopped, so the result of the handler is ignored. */
  isAbandoned: boolean;
  /** The question that this step has to answer. */
  replyTo: ReplyTo | undefined;
  /** The actor has refused the message. */
  isRefused: boolean;
  /** Called at its end if its duration is measured. */
  ends?: (() => void) | undefined;
  /** Resumes the dispatch loop: the step has ended or waits for an answer. */
  wake: (() => void) | undefined;
}

/** Number of elements taken from the front after which their places may be given up. */
const TAKEN_MIN = 16;

/** A queue. Its array is copied when half of its places are those of elements that were taken. */
export class Queue<T> {
  #items: (T | undefined)[] = [];
  #head = 0;

  /** Number of elements held. */
  get length(): number {
    return this.#items.length - this.#head;
  }

  /** Adds an element at the end. */
  push(item: T): void {
    this.#items.push(item);
  }

  /** The element at `index` from the front, or undefined past the end. */
  at(index: number): T | undefined {
    return this.#items[this.#head + index];
  }

  /** Removes and returns the front element. */
  shift(): T | undefined {
    if (this.length === 0) return undefined;
    const item = this.#items[this.#head];
    this.#items[this.#head++] = undefined;
    if (this.#head >= TAKEN_MIN && 2 * this.#head >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  /** Removes `item` and returns true if it was found. Linear in the length. */
  remove(item: T): boolean {
    if (this.at(0) === item) return this.shift() !== undefined;
    const index = this.#items.indexOf(item, this.#head);
    if (index >= 0) this.#items.splice(index, 1);
    return index >= 0;
  }

  /** The elements, front first. */
  *[Symbol.iterator](): IterableIterator<T> {
    for (let index = 0; index < this.length; index++) yield this.at(index)!;
  }
}

/** Three lanes of envelopes: control before data before idle. */
export class Mailbox {
  readonly #lanes: Readonly<Record<Lane, Queue<Envelope>>> = {
    control: new Queue(),
    data: new Queue(),
    idle: new Queue(),
  };

  /** Messages that wait, in all lanes. */
  get length(): number {
    const { control, data, idle } = this.#lanes;
    return control.length + data.length + idle.length;
  }

  /** Adds an envelope at the end of its lane. */
  push(envelope: Envelope): void {
    this.#lanes[envelope.lane].push(envelope);
  }

  /** Returns the next envelope in FIFO order: the control lane first. */
  head(): Envelope | undefined {
    const { control, data, idle } = this.#lanes;
    return control.at(0) ?? data.at(0) ?? idle.at(0);
  }

  /** Returns all candidates: the oldest envelope of each sender in each lane, oldest first. */
  heads(): Envelope[] {
    const { control, data, idle } = this.#lanes;
    return oldestOfEachSender(idle, oldestOfEachSender(data, oldestOfEachSender(control)));
  }

  /** Iterates over all envelopes, lane by lane, each in order of arrival. */
  *[Symbol.iterator](): IterableIterator<Envelope> {
    for (const lane of Object.values(this.#lanes)) yield* lane;
  }

  /** Removes an envelope and returns true if it was found. */
  remove(envelope: Envelope): boolean {
    return this.#lanes[envelope.lane].remove(envelope);
  }

  /** Removes and returns all envelopes. */
  drain(): Envelope[] {
    const all = [...this];
    for (const lane of Object.values(this.#lanes)) while (lane.shift());
    return all;
  }
}

/** Adds the oldest envelope of each sender in a queue to those of other queues, and returns all. */
export function oldestOfEachSender(lane: Queue<Envelope>, heads: Envelope[] = []): Envelope[] {
  const first = heads.length;
  for (let index = 0; index < lane.length; index++) {
    const envelope = lane.at(index)!, { isolate, serial } = envelope.from;
    // Few senders: a search of those found is faster than a set of their keys.
    let n = first;
    while (heads[n] && (heads[n]!.from.serial !== serial || heads[n]!.from.isolate !== isolate)) {
      n++;
    }
    if (n === heads.length) heads.push(envelope);
  }
  return heads;
}
