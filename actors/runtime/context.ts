/**
 * The interfaces of a system of actors: contexts, options, events and scheduling.
 *
 * @module
 */

import type { DeadLetter, Down } from "./failure.ts";
import type { ObserverSpec } from "./observer.ts";
import type { Addend, Transport } from "./transport.ts";
import type {
  ActorRef,
  ActorSpec,
  Answers,
  AnswerTo,
  Lane,
  Message,
  Questions,
  Undeclared,
} from "./types.ts";

/** Options of a sent message. */
export interface SendOptions {
  /** The lane. Default: `data`. */
  readonly lane?: Lane;
  /** Buffers to move instead of copy. The buffers of the sender are detached, also within one
   * isolate. */
  readonly transfer?: readonly ArrayBuffer[];
  /**
   * For a message that this actor forwards from an untrusted source, such as a network. The receipt
   * is sent back, in the control lane, when the message was handled or lost. If the receiver has no
   * handler for the message, the message becomes a dead letter and no receipt is sent. The message
   * also becomes a dead letter while half of the receiver's mailbox is full.
   */
  readonly receipt?: Message;
}

/** Options of a question. */
export interface AskOptions extends SendOptions {
  /** Timeout of the answer in milliseconds, or Infinity. Default 60,000. */
  readonly timeoutMs?: number;
  /**
   * Withdraws the question when aborted: the promise rejects with the reason of the signal, and the
   * actor asked does not handle the question unless it has already begun.
   */
  readonly signal?: AbortSignal;
}

/** Default of {@linkcode AskOptions.timeoutMs}. */
export const ASK_TIMEOUT_MS = 60_000;

/** Default of {@linkcode SpawnOptions.capacity}: a bound far above what credits allow. */
export const MAILBOX_CAPACITY = 1_048_576;

/** A kind of isolate: a built-in one, or the name of a registered transport. */
export type PlaceName = "local" | "worker" | "process" | (string & Record<never, never>);

/** Options of a new actor: its id, isolate and limits. */
export interface SpawnOptions {
  /** Unique among the living actors of this isolate and those it has spawned elsewhere. */
  readonly id: string;
  /**
   * `local` (default): this isolate. `worker`: a new Deno worker. `process`: a new process; if it
   * dies for any reason, only its actors are lost. A process needs the permissions to run, read,
   * write and net, and does not get permissions that this program has only in part. Any other name:
   * an isolate started by the {@linkcode Transport} with that name.
   */
  readonly isolate?: PlaceName;
  /** Limit of the JavaScript heap of a process, in MiB, without buffers. Default: V8's. */
  readonly memoryLimitMb?: number;
  /**
   * Maximum number of waiting messages in all lanes, including messages of timers, notices of
   * ended actors, and messages that have reached the isolate but were not received yet. Credits
   * control the flow, so an overflow is a broken invariant: the actor fails, and the failure names
   * the most frequent senders. Default 1,048,576.
   */
  readonly capacity?: number;
  /** Buffers in `init` to move instead of copy. */
  readonly transfer?: readonly ArrayBuffer[];
}

/**
 * Options of stopping an actor.
 *
 * @example Handle the waiting messages first
 * ```ts
 * import { createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const printer = (ctx) => ({
 *   Print({ page }) { ctx.reply("printed " + page); },
 * })`;
 * await using system = createSystem();
 * const printer = system.spawn<undefined, { type: "Print"; page: number }>(
 *   { module, export: "printer" },
 *   undefined,
 *   { id: "printer" },
 * );
 * const pages = [1, 2].map((page) => system.ask(printer, { type: "Print", page }));
 * await system.stop(printer, { drain: true });
 * assert.deepEqual(await Promise.all(pages), ["printed 1", "printed 2"]);
 * ```
 */
export interface StopOptions {
  /**
   * Handle the messages that have arrived before stopping. The children then drain too, the last
   * spawned first. Messages that arrive later become dead letters, timers are cancelled, and ends
   * of watched actors are no longer reported. Draining has no time limit; a second stop without
   * `drain` cuts it short.
   */
  readonly drain?: boolean;
}

/** Answers a question, once. */
export type Reply<R = unknown> = (
  value: R,
  options?: { transfer?: readonly ArrayBuffer[] },
) => void;

/** Asks an actor; see {@linkcode Context.ask}. */
export interface AskCall {
  /** Asks a question whose answer type is declared by {@linkcode Ask}. */
  <T extends Message, K extends Questions<T>["type"]>(
    to: ActorRef<T>,
    message: NoInfer<Questions<T>> & { readonly type: K },
    options?: AskOptions,
  ): Promise<AnswerTo<Questions<T>, K>>;
  /** Asks a question whose answer type is given by the caller. */
  <T extends Message, R>(
    to: ActorRef<T>,
    message: NoInfer<Undeclared<T>>,
    options?: AskOptions,
  ): Promise<R>;
}

/**
 * The interface between an actor and everything outside of it. An actor must get the time, random
 * numbers and messages only from its context, so that a run can be repeated.
 *
 * [Note: steps] A step is one message handled to completion, including the promise of its handler.
 * During a step no other actor of the isolate runs, except while the actor waits in {@linkcode
 * Context.ask}, which suspends only this actor. Its next message waits until the step has ended and
 * all its questions are answered. Microtasks are not scheduling points.
 *
 * @example An actor that answers after a delay and then stops
 * ```ts
 * import { createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const alarm = (ctx, { delayMs }) => {
 *   let ring;
 *   return {
 *     Wait() { ring = ctx.deferReply(); ctx.after(delayMs, { type: "Ring" }); },
 *     Ring() { ring("awake"); ctx.stop(); },
 *   };
 * }`;
 * type Alarm = { type: "Wait" } | { type: "Ring" };
 *
 * await using system = createSystem();
 * const alarm = system.spawn<{ delayMs: number }, Alarm>(
 *   { module, export: "alarm" },
 *   { delayMs: 5 },
 *   { id: "alarm" },
 * );
 * const down = new Promise((resolve) => system.watch(alarm, resolve));
 * assert.equal(await system.ask(alarm, { type: "Wait" }), "awake");
 * assert.deepEqual(await down, { ref: alarm, reason: "stopped" });
 * ```
 *
 * @typeParam M messages that the actor handles.
 * @typeParam A answers of the actor.
 */
export interface Context<M extends Message, A = Answers<M>> {
  /** The address of this actor. */
  readonly self: ActorRef<M>;

  /**
   * Sends a message. Never waits and never throws: a message that cannot be delivered becomes a
   * dead letter. The receiver gets a copy of the current value. Messages of one sender in one lane
   * arrive in order. Messages in transit to or from an isolate that dies are lost without a dead
   * letter; watch the actor to be notified.
   */
  send<T extends Message>(to: ActorRef<T>, message: NoInfer<T>, options?: SendOptions): void;

  /**
   * Sends a message and waits for the answer. Other actors run meanwhile.
   *
   * @throws {AskTimeoutError} (as a rejection) if no answer arrives in time.
   * @throws {ActorFailedError} (as a rejection) if the actor asked has ended.
   * @throws {RangeError} (as a rejection) if the timeout or the lane is invalid.
   * @throws {TypeError} (as a rejection) outside a step, if an actor asks itself or an actor of
   * another system, if the question cannot be sent, or if the handler ends without an answer.
   */
  readonly ask: AskCall;

  /** Answers the current message. Does nothing if the message is not a question. */
  reply(value: A, options?: { transfer?: readonly ArrayBuffer[] }): void;

  /** Refuses the current message: it becomes a dead letter, and its asker gets an error with the
   * reason. */
  refuse(why: string): void;

  /** Returns a function that answers the current message, which may be called in a later step. */
  deferReply(): Reply<A>;

  /**
   * Spawns an actor as a child of this one. The child stops with its parent. If the parent does not
   * watch the child, a failure of the child also fails the parent, even if other actors watch it.
   * The reference is valid immediately.
   *
   * @throws {RangeError} if the id is empty or taken, the kind of isolate is unknown, or the
   * capacity or the memory limit is not a positive integer.
   * @throws {TypeError} if `init` cannot be cloned, an option has the wrong type, this actor is
   * stopping, or a memory limit is given for an actor without a process.
   * @throws {Deno.errors.NotCapable} if the program lacks a permission that a process needs.
   */
  spawn<I, T extends Message>(
    spec: ActorSpec<I, T>,
    init: NoInfer<I>,
    options: SpawnOptions,
  ): ActorRef<T>;

  /** Sends exactly one message to this actor, in the control lane, when `ref` stops or fails or if
   * it has already ended. */
  watch(ref: ActorRef, as: (down: Down) => M): void;

  /**
   * Sends a message to this actor, in the control lane, after `delayMs` milliseconds. Replaces a
   * timer with the same key. All timers end with the actor.
   */
  after(delayMs: number, message: M, key?: string): void;

  /** Returns the milliseconds since the epoch. The clock never goes back. */
  now(): number;

  /** Returns the next number in [0, 1) of this actor's sequence named `label`. It depends only on
   * the seed, the actor's id and the label, not on other draws. */
  random(label: string): number;

  /** Sets the activity of the actor, such as `2F0`, for failure reports and traces. Cleared before
   * each step. */
  setActivity(text: string): void;

  /**
   * Runs work that may take long, such as a kernel. While the work blocks this isolate, {@linkcode
   * System.activity} still counts it as active.
   */
  busy<T>(run: () => T | Promise<T>): Promise<T>;

  /**
   * Runs an external operation, such as on a file, a device or the network. As in {@linkcode
   * Context.ask}, this step is suspended and other actors run; the result, which must be data
   * because journals store it, arrives in a separate step. In a simulation the operation takes no
   * time and must give the same result in every run. Any other `await` blocks all actors of the
   * isolate.
   *
   * @throws {TypeError} (as a rejection) outside a step, or if a journal cannot store the result.
   */
  external<T>(run: () => T | Promise<T>): Promise<T>;

  /**
   * Adds an array to the arrays of the other members of a group, element by element. The isolates
   * of all members need a transport whose network supports this; see {@linkcode Collectives}. The
   * sums are the same for all members and arrive as a message of this actor to itself. A journal
   * cannot replay them.
   *
   * @throws {TypeError} if the transport of this isolate does not support it.
   */
  allReduce(addend: Addend, as: (sums: Addend["values"]) => M): void;

  /**
   * Lets tools read the state. Invariants, journals and state counts call `read` between steps. It
   * must change nothing and should return a small, plain and complete value.
   */
  expose(read: () => unknown): void;

  /** Registers a cleanup for when the actor stops. The last registered cleanup runs first. */
  defer(cleanup: () => void | Promise<void>): void;

  /**
   * Stops this actor after the current message, or another actor. A child in another isolate is
   * killed after the grace unless it drains; an actor that is not a child is only requested to
   * stop. Its waiting messages become dead letters unless it drains, and its watchers are notified.
   * Does nothing if the actor has ended.
   *
   * @throws {TypeError} if `ref` is not a reference.
   */
  stop(ref?: ActorRef, options?: StopOptions): void;
}

/** Options of a system. */
export interface SystemOptions {
  /** Root seed of all random numbers. Default: 0. */
  readonly seed?: number;
  /** Picks the next message among the actors of this isolate. Default: the oldest first. */
  readonly choose?: Choose;
  /** The clock of the actors of this isolate, in milliseconds. Default: the wall clock. */
  readonly now?: () => number;
  /** Module of the observer that every isolate opens, such as a journal. Default: none. */
  readonly observer?: ObserverSpec;
  /** Called for every dead letter of every isolate. */
  readonly onDeadLetter?: (letter: DeadLetter) => void;
  /** Transports of kinds of isolates other than `local`, `worker` and `process`, by name. */
  readonly transport?: Transport | readonly Transport[];
  /** Time that an actor in a worker or process may take to stop before its isolate is killed, in
   * milliseconds. Default: 5,000. */
  readonly stopGraceMs?: number;
}

/** Options of stopping a system or one of its actors. */
export interface SystemStopOptions extends StopOptions {
  /** Stops draining: when it aborts, messages that were not handled become dead letters. */
  readonly signal?: AbortSignal;
}

/** A message was not delivered. */
export interface DeadLetterEvent {
  /** Type of the event. */
  readonly type: "dead-letter";
  /** Sender, receiver and type of the message, with the reason. */
  readonly letter: DeadLetter;
  /** A copy of the message; absent if it cannot be copied. */
  readonly message?: unknown;
}

/** A step has taken longer than the limit of a subscriber. Reported once per step. */
export interface SlowStepEvent {
  /** Type of the event. */
  readonly type: "slow-step";
  /** Id of the actor. */
  readonly actor: string;
  /** Type of the message, with the activity of the actor: `Forward (2F0)`. */
  readonly handling: string;
  /** Milliseconds since the step began. */
  readonly forMs: number;
  /** True if the step has ended: it blocked its isolate, so it could not be reported earlier. */
  readonly isOver: boolean;
  /** Ids of the actors whose answers it waits for. */
  readonly waitsFor: readonly string[];
}

/** An event in any isolate of a system. */
export type SystemEvent = DeadLetterEvent | SlowStepEvent;

/** Events that a subscriber receives in addition to dead letters. */
export interface Subscription {
  /** Duration in milliseconds after which a step is reported. Absent: steps are not reported. */
  readonly slowStepMs?: number | undefined;
}

/** A system: actors and the isolates that host them; see {@linkcode createSystem}. */
export interface System extends AsyncDisposable {
  /** Spawns an actor at the top of the tree. See {@linkcode Context.spawn}. */
  spawn<I, T extends Message>(
    spec: ActorSpec<I, T>,
    init: NoInfer<I>,
    options: SpawnOptions,
  ): ActorRef<T>;
  /** Sends a message as "system". See {@linkcode Context.send}. */
  send<T extends Message>(to: ActorRef<T>, message: NoInfer<T>, options?: SendOptions): void;
  /** Asks as "system". See {@linkcode Context.ask}. */
  readonly ask: AskCall;
  /** Calls `onDown` exactly once when `ref` stops or fails or if it has already ended. */
  watch(ref: ActorRef, onDown: (down: Down) => void): void;
  /** Transports of the isolates that actors can be spawned in; empty if time is virtual. */
  readonly transports: readonly Transport[];
  /** The newest dead letters, oldest first, at most 1,000. */
  readonly deadLetters: readonly DeadLetter[];
  /**
   * Calls `listener` for each event from now on, in the order in which this isolate learns of them.
   * Events are not stored. An error thrown by the listener fails the system. An isolate that has
   * not received the subscription yet reports dead letters without their messages.
   *
   * @example Dead letters with their messages
   * ```ts
   * import { createSystem } from "@troupe/troupe/actors";
   * import assert from "node:assert/strict";
   *
   * await using system = createSystem();
   * const module = "data:text/javascript,export const idle = () => ({})";
   * const ref = system.spawn<undefined, { type: "Call"; n: number }>(
   *   { module, export: "idle" },
   *   undefined,
   *   { id: "idle" },
   * );
   * const lost: unknown[] = [];
   * {
   *   using _ = system.subscribe((event) => lost.push(event));
   *   await system.stop(ref);
   *   system.send(ref, { type: "Call", n: 7 });
   * }
   * system.send(ref, { type: "Call", n: 8 });
   * const letter = { from: "system", to: "idle", type: "Call", reason: "stopped" };
   * assert.deepEqual(lost, [{ type: "dead-letter", letter, message: { type: "Call", n: 7 } }]);
   * ```
   *
   * @returns a disposable that ends the subscription.
   * @throws {RangeError} if `slowStepMs` is not a number of 0 or more.
   */
  subscribe(listener: (event: SystemEvent) => void, options?: Subscription): Disposable;
  /**
   * Returns a number that grows if any isolate is {@linkcode Context.busy} or was since the last
   * call. Absent if time is virtual.
   */
  readonly activity?: () => number;
  /**
   * Rejects with {@linkcode ActorFailedError} at the first failure that no parent watches, and if
   * an observer throws. As with any unhandled rejection, the program ends if it is not handled.
   */
  readonly failed: Promise<never>;
  /**
   * Stops all actors, the last spawned first, and ends their workers and processes. Always
   * resolves: a worker or process that does not stop is killed; a handler of this isolate or a loop
   * in a worker that never ends is left behind.
   */
  stop(options?: SystemStopOptions): Promise<void>;
  /**
   * Stops one actor spawned by this system, with its descendants. Always resolves, as above, and
   * immediately if the actor has ended. Its id may then be used again.
   */
  stop(ref: ActorRef, options?: SystemStopOptions): Promise<void>;
}

/** Maximum length of {@linkcode System.deadLetters}. */
export const MAX_DEAD_LETTERS = 1000;

/** A message that may be handled next. */
export interface Candidate {
  /** Id of the actor that would handle it. */
  readonly actor: string;
  /** The lane it waits in. */
  readonly lane: Lane;
  /** Id of the sender. */
  readonly from: string;
  /** Type of the message; `init`, `finish` and `answer:…` are work of the runtime. */
  readonly type: string;
  /** Position in the order of all messages of the isolate: a lower one is older. */
  readonly seq: number;
  /** Number of earlier messages from this sender to this actor. */
  readonly nth: number;
}

/**
 * Picks the next message by its index. Candidates are always in the same order: control before
 * data, then the oldest first, so index 0 is the default order. A message behind another message of
 * the same sender and lane is not a candidate.
 *
 * @example The newest message first, within the order of each sender
 * ```ts
 * import { type Choose, createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const log = (ctx) => {
 *   const log = [];
 *   return { Note({ n }) { log.push(n); }, Read() { ctx.reply(log); } };
 * }`;
 * type Log = { type: "Note"; n: number } | { type: "Read" };
 *
 * const choose: Choose = (candidates) => candidates.length - 1;
 * await using system = createSystem({ choose });
 * const log = system.spawn<undefined, Log>({ module, export: "log" }, undefined, { id: "log" });
 * for (const n of [1, 2]) system.send(log, { type: "Note", n });
 * assert.deepEqual(await system.ask(log, { type: "Read" }), [1, 2]);
 * ```
 */
export type Choose = (candidates: readonly Candidate[]) => number;
