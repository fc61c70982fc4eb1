/**
 * The state of an actor in its isolate.
 *
 * @module
 */

import type { Context } from "./context.ts";
import type { Down, Reason } from "./failure.ts";
import {
  type Envelope,
  type HandlingStep,
  Mailbox,
  oldestOfEachSender,
  type ReplyTo,
  Ring,
} from "./mailbox.ts";
import type { ActorRef, Message } from "./types.ts";

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
  readonly ref: ActorRef;
  /** Absent for the system itself. */
  readonly parent: ActorRef | undefined;
  readonly capacity: number;
  readonly mailbox = new Mailbox();
  /** Work of the runtime before and between messages: start, resume, finish. */
  readonly agenda = new Ring<Envelope>();
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
  constructor(ref: ActorRef, parent: ActorRef | undefined, capacity: number) {
    this.ref = ref;
    this.parent = parent;
    this.capacity = capacity;
  }
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
export function headOf(actor: Actor): Envelope | undefined {
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
