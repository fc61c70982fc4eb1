/**
 * The state of an actor in its isolate.
 *
 * @module
 */

import type { Candidate, Choose, Context } from "./context.ts";
import type { Down, Reason } from "./failure.ts";
import {
  type Envelope,
  type HandlingStep,
  Mailbox,
  oldestOfEachSender,
  Queue,
  type ReplyTo,
} from "./mailbox.ts";
import { type ActorRef, assertInput, type Lane, type Message } from "./types.ts";

/**
 * A map that moves to a new table whenever most of its entries have gone.
 *
 * [Note: tables that stay] When V8's Map shrinks or grows, its old table keeps a reference to the
 * new one, for iterators. Once a table has moved to the old generation, young collections do not
 * free it, so it keeps all later tables and their former contents alive: some kilobytes per
 * training step, until a full collection. A new map breaks that chain. Each entry is copied at most
 * once per entry taken.
 */
export class CompactingMap<K, V> implements Iterable<[K, V]> {
  #map = new Map<K, V>();
  /** Entries taken since the map was created. */
  #taken = 0;

  /** The number of entries. */
  get size(): number {
    return this.#map.size;
  }

  /** Returns the value of a key, or undefined. */
  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  /** Returns true if a key has a value. */
  has(key: K): boolean {
    return this.#map.has(key);
  }

  /** Sets the value of a key. */
  set(key: K, value: V): void {
    this.#map.set(key, value);
  }

  /** Removes a key and returns its value. */
  take(key: K): V | undefined {
    const value = this.#map.get(key);
    if (this.#map.delete(key) && ++this.#taken > this.#map.size) {
      this.#map = new Map(this.#map);
      this.#taken = 0;
    }
    return value;
  }

  /** The values in insertion order. */
  values(): IterableIterator<V> {
    return this.#map.values();
  }

  /** The entries in insertion order. */
  [Symbol.iterator](): IterableIterator<[K, V]> {
    return this.#map[Symbol.iterator]();
  }
}

/** The key of the handler of all messages without a specific handler. */
export const OTHERS: unique symbol = Symbol("others");

/** One handler for each message of a protocol; see {@linkcode Message}. */
export type Handlers<M extends Message> = {
  [K in M["type"]]: (message: Extract<M, { readonly type: K }>) => void | Promise<void>;
};

/**
 * Makes the state of an actor, kept in its closure, and returns its handlers; see
 * {@linkcode ActorSpec}. It may return an instance of a class instead: the public methods of that
 * and of its base classes are the handlers, except names that every object has, such as
 * `toString`. Other members should be private (`#count`, `#add()`).
 *
 * @example An instance
 * ```ts
 * import { createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const code = `class Counter {
 *   #ctx;
 *   #count;
 *   constructor(ctx, start) { this.#ctx = ctx; this.#count = start; }
 *   Add({ by }) { this.#count += by; }
 *   Read() { this.#ctx.reply(this.#count); }
 * }
 * export const counter = (ctx, start) => new Counter(ctx, start);`;
 * const module = `data:text/javascript,${encodeURIComponent(code)}`;
 * type CounterMessage = { type: "Add"; by: number } | { type: "Read" };
 *
 * await using system = createSystem();
 * const counter = system.spawn<number, CounterMessage>(
 *   { module, export: "counter" },
 *   40,
 *   { id: "counter" },
 * );
 * system.send(counter, { type: "Add", by: 2 });
 * assert.equal(await system.ask(counter, { type: "Read" }), 42);
 * ```
 *
 * @typeParam Init type of the factory's second argument.
 * @typeParam M messages that the actor handles.
 */
export type ActorFactory<Init, M extends Message> = (
  ctx: Context<M>,
  init: Init,
  argument?: unknown,
) => Handlers<M> | Promise<Handlers<M>>;

/** Serial of the system itself, in isolate 0. */
export const SYSTEM_SERIAL = 0;

/** Handlers by message type, for any protocol. */
export type AnyHandlers =
  & Readonly<Record<string, (message: Message) => void | Promise<void>>>
  & {
    readonly [OTHERS]?: (message: Message) => void | Promise<void>;
  };

/** A spawned actor, as its parent knows it. */
interface Child {
  readonly ref: ActorRef;
  /** Cancels the kill that follows if the child does not stop in time. */
  cancelKill?: () => void;
  /** The parent watched it and was notified of its end. */
  isTold?: true;
  /** Resolves when it has ended and its id is free; absent until a caller waits for that. */
  ended?: PromiseWithResolvers<void>;
}

/** A timer that is running, or whose message waits. */
export interface Timer {
  cancel: () => void;
  envelope?: Envelope | undefined;
}

/** The state of an actor in its isolate. */
export class Actor {
  readonly mailbox = new Mailbox();
  /** Work of the runtime before and between messages: start, resume, finish. */
  readonly agenda = new Queue<Envelope>();
  /** In order of spawning, by {@linkcode keyOf}. */
  readonly children = new Map<string, Child>();
  /** Isolates with a watcher of this actor. */
  readonly watchers = new Set<number>();
  /** Keys of the actors that this one watches. */
  readonly watching = new Set<string>();
  /** Questions that it has not answered yet. */
  readonly pendingReplies = new CompactingMap<ReplyTo, true>();
  readonly timers = new Map<string | symbol, Timer>();
  readonly cleanups: (() => void | Promise<void>)[] = [];
  readonly streams = new Map<string, () => number>();
  /** Number of messages by id of the sender. */
  readonly received = new Map<string, number>();
  /** Number of questions that it has asked. */
  asked = 0;
  /** Returns its state to tools: see {@linkcode Context.expose}. */
  expose: (() => unknown) | undefined;
  handlers: AnyHandlers = {};
  state: "starting" | "ready" | "stopping" = "starting";
  reason: Reason = "stopped";
  /** The current step: running, or waiting for answers. */
  step: HandlingStep | undefined;
  isFinishing = false;
  /** It handles the messages that have arrived, accepts no more, and then stops. */
  isDraining = false;
  activity = "";
  /** The envelope that the picker holds for this actor. */
  offered: Envelope | undefined;

  /** Creates an actor that has not started. */
  constructor(
    readonly ref: ActorRef,
    /** Absent for the system itself. */
    readonly parent: ActorRef | undefined,
    readonly capacity: number,
  ) {}
}

/** Returns a key that is unique among all actors of all isolates. */
export function keyOf({ isolate, serial }: ActorRef): string {
  return `${isolate}/${serial}`;
}

/** Returns true if a step waits for answers, so other actors may run. */
function isSuspended(actor: Actor): boolean {
  return actor.step !== undefined && actor.step.asks.size > 0;
}

/** Returns the next envelope of the actor in FIFO order, or undefined if it cannot run now. */
function headOf(actor: Actor): Envelope | undefined {
  if (actor.step && !isSuspended(actor)) return undefined;
  return actor.step || actor.state !== "ready" ? actor.agenda.at(0) : actor.mailbox.head();
}

/** Returns all envelopes that the actor may handle next. */
export function headsOf(actor: Actor): Envelope[] {
  if (actor.step && !isSuspended(actor)) return [];
  if (actor.step || actor.state !== "ready") return oldestOfEachSender(actor.agenda);
  return actor.mailbox.heads();
}

/** Returns the message type and the activity of a step, for a report. */
export function describeStep(
  { activity }: Actor,
  step: HandlingStep | undefined,
): string | undefined {
  const type = step?.envelope.message.type;
  return type === undefined || activity === "" ? type : `${type} (${activity})`;
}

/** A question that is not answered yet. */
export interface PendingAsk {
  readonly from: ActorRef;
  /** The actor asked. */
  readonly to: ActorRef;
  readonly type: string;
  readonly timeoutMs: number;
  /** Number of questions that the asker had asked before. */
  readonly nth: number;
  /** The actor that waits in its step; undefined for the owner of the system. */
  readonly asker: Actor | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  /** Abort signal of the asker. */
  readonly signal?: AbortSignal;
  /** Cancels its timeout and its abort listener. */
  readonly cancel: () => void;
}

/** A watch of an actor by an actor, or the system owner, of this isolate. */
export interface Watch {
  readonly ref: ActorRef;
  /** Absent when it is the owner of the system. */
  readonly watcher: Actor | undefined;
  readonly notify: (down: Down) => void;
}

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

/** The first rank of each lane. */
const RANKS: Readonly<Record<Lane, number>> = { control: 0, data: 2 ** 51, idle: 2 ** 52 };

/** Returns the order of an envelope as one number: by lane, then by age. */
const rank = ({ lane, seq }: Envelope): number => seq + RANKS[lane];

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
      const work = candidates[index]?.work, to = candidates.length - 1;
      const must = `Cannot pick a message: the choice must be an integer from 0 to ${to}`;
      assertInput(work !== undefined, must, index);
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
