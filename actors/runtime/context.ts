/**
 * The system of actors as its owner sees it.
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

/** How a message travels. */
export interface SendOptions {
  /** Default `data`. */
  readonly lane?: Lane;
  /** Buffers to move instead of copy; the sender's are detached, also within one isolate. */
  readonly transfer?: readonly ArrayBuffer[];
  /**
   * For a message that this actor passes on and does not vouch for, as one from a network. This
   * receipt comes back, in the control lane, when the message was handled or lost. Where its receiver
   * has no handler for it, it is refused: it becomes a dead letter, and no receipt comes. It becomes a
   * dead letter, too, while half of the receiver's mailbox is full.
   */
  readonly receipt?: Message;
}

/** How a question travels and how long its answer is waited for. */
export interface AskOptions extends SendOptions {
  /** Milliseconds to wait for the answer, or Infinity. Default {@linkcode ASK_TIMEOUT_MS}. */
  readonly timeoutMs?: number;
  /**
   * Takes the question back: its promise rejects with the reason of the signal, and whoever is asked
   * never sees it unless that is done already.
   */
  readonly signal?: AbortSignal;
}

/** Default of {@linkcode AskOptions.timeoutMs}. */
export const ASK_TIMEOUT_MS = 60_000;

/** Default of {@linkcode SpawnOptions.capacity}: far above what credits allow, yet a bound. */
export const MAILBOX_CAPACITY = 1_048_576;

/** A kind of isolate: one that every system has, or the name of a transport registered with it. */
export type PlaceName = "local" | "worker" | "process" | (string & Record<never, never>);

/** Where and under which name an actor lives. */
export interface SpawnOptions {
  /** Unique among the living actors of this isolate and those it has spawned elsewhere. */
  readonly id: string;
  /**
   * `local` (default): this isolate. `worker`: a new Deno worker. `process`: a new process, whose
   * death by whatever cause nothing but its actors suffers; it needs the permissions to run, read,
   * write and net, and lacks those that this program has only a part of. Another name: wherever the
   * {@linkcode Transport} of that name puts it.
   */
  readonly isolate?: PlaceName;
  /** Limit of the JavaScript heap of a process, in MiB; buffers do not count. Default: V8's. */
  readonly memoryLimitMb?: number;
  /**
   * Most messages that may wait, in both lanes: those that have reached its isolate but have not
   * been received yet included, and those of timers and notices of ends. Flow is by credit, so one
   * more is a broken invariant: the actor fails, and names who sent the most. Default {@linkcode MAILBOX_CAPACITY}.
   */
  readonly capacity?: number;
  /** Buffers in `init` to move instead of copy. */
  readonly transfer?: readonly ArrayBuffer[];
}

/**
 * How an actor is made to stop.
 *
 * @example What has arrived is handled first
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
   * Let it handle what has arrived by now first, and then those below it likewise, the youngest
   * first. What comes meanwhile becomes dead letters, timers end, and no end of a watched actor is
   * told any more. It takes as long as it takes; a second stop without this cuts it short.
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
  /** A question whose answer is declared with it, by {@linkcode Ask}. */
  <T extends Message, K extends Questions<T>["type"]>(
    to: ActorRef<T>,
    message: NoInfer<Questions<T>> & { readonly type: K },
    options?: AskOptions,
  ): Promise<AnswerTo<Questions<T>, K>>;
  /** A question whose answer is what the caller says it is. */
  <T extends Message, R>(
    to: ActorRef<T>,
    message: NoInfer<Undeclared<T>>,
    options?: AskOptions,
  ): Promise<R>;
}

/**
 * An actor's one way to the world. The clock, chance and the order of messages come from here and
 * from nowhere else, so a run can be repeated.
 *
 * [Note: steps] A step is one message handled to completion, its promise included. Within an
 * isolate no other actor runs during a step, except while the actor waits in
 * {@linkcode Context.ask}: that suspends this actor alone. Its own next message still waits until
 * the step is over and all that it asked is answered. Ticks of promises are not scheduling points.
 *
 * @example An actor that calls back when it is told to, and says so when it is gone
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
 * @typeParam A what it answers.
 */
export interface Context<M extends Message, A = Answers<M>> {
  /** The address of this actor. */
  readonly self: ActorRef<M>;

  /**
   * Sends a message. Never waits and never throws: what cannot be delivered becomes a dead letter.
   * The receiver gets a copy as of now. Messages of one sender in one lane arrive in order. Only
   * what is under way to or from an isolate when that dies is lost without a word; a watch tells of
   * that.
   */
  send<T extends Message>(to: ActorRef<T>, message: NoInfer<T>, options?: SendOptions): void;

  /**
   * Sends a message and waits for the answer, while other actors run.
   *
   * @throws {AskTimeoutError} (as a rejection) when no answer comes in time.
   * @throws {ActorFailedError} (as a rejection) when the actor asked is gone.
   * @throws {RangeError} (as a rejection) when the timeout or the lane is none.
   * @throws {TypeError} (as a rejection) outside a step, when an actor asks itself or one of another
   * system, when the question cannot be sent, or when a handler ends without an answer.
   */
  readonly ask: AskCall;

  /** Answers the message being handled; does nothing when nobody asked. */
  reply(value: A, options?: { transfer?: readonly ArrayBuffer[] }): void;

  /** Refuses the message being handled, with a reason: it becomes a dead letter, and its asker gets an
   * error. */
  refuse(why: string): void;

  /** Takes the answer out of this step: the function returned may be called in a later one. */
  deferReply(): Reply<A>;

  /**
   * Makes an actor, a child of this one: it stops with it, and a failure that this actor
   * does not watch becomes its own, whoever else watches. The reference is good at once.
   *
   * @throws {RangeError} when the id is empty or taken, the isolate is of no kind, or the capacity
   * or the memory limit is not a positive integer.
   * @throws {TypeError} when `init` cannot be cloned, an option is of another type than it must be,
   * this actor is stopping, or an actor that does not get a process has a memory limit.
   * @throws {Deno.errors.NotCapable} when a process needs a permission that is lacking.
   */
  spawn<I, T extends Message>(
    spec: ActorSpec<I, T>,
    init: NoInfer<I>,
    options: SpawnOptions,
  ): ActorRef<T>;

  /** Asks for exactly one message, in the control lane, when `ref` stops, fails or is gone. */
  watch(ref: ActorRef, as: (down: Down) => M): void;

  /**
   * Sends a message to this actor, in the control lane, after `delayMs` milliseconds. A timer with
   * the same key is replaced; all end with the actor.
   */
  after(delayMs: number, message: M, key?: string): void;

  /** Milliseconds since the epoch; never goes back. */
  now(): number;

  /** The next number in [0, 1) of this actor's own sequence named `label`. It depends on the seed,
   * the actor's id and the label, and on no other draw. */
  random(label: string): number;

  /** Sets the activity of the actor, such as `2F0`, for failure reports and traces. Cleared before each step. */
  setActivity(text: string): void;

  /**
   * Runs what may take its time, such as a kernel: however long that keeps this isolate from
   * answering, those who look at {@linkcode System.activity} see that it is at work.
   */
  busy<T>(run: () => T | Promise<T>): Promise<T>;

  /**
   * Waits for what is outside of the actors: a file, a device, the network. It is as when an answer
   * is waited for: this step pauses and others go on, and what comes of it (data, as journals keep
   * it) is handed to it in a step of its own. In a simulation it takes no time and must be the same
   * in every run. Any other `await` holds up all actors of the isolate.
   *
   * @throws {TypeError} (as a rejection) outside a step, or when a journal cannot keep what comes.
   */
  external<T>(run: () => T | Promise<T>): Promise<T>;

  /**
   * Adds an array to those of the other members of a group, element by element, where the isolates
   * of all have a transport whose network does so; see {@linkcode Collectives}. The sums, the same
   * for all, come as a message of this actor to itself. No journal can replay them.
   *
   * @throws {TypeError} when the transport of this isolate cannot.
   */
  allReduce(addend: Addend, as: (sums: Addend["values"]) => M): void;

  /**
   * Lets tools look at the state: `read` is called between steps, by invariants, journals and
   * state counts, and must change nothing. What it returns should be small, plain and complete.
   */
  expose(read: () => unknown): void;

  /** Registers work for when the actor stops; the last registered runs first. */
  defer(cleanup: () => void | Promise<void>): void;

  /**
   * Stops this actor after this message, or another: a child, with the time that it may take where
   * it lives in another isolate, or any other, which is asked to. What waits in its mailbox becomes
   * dead letters, unless it drains. Whoever watches it is told; nothing happens when it has ended.
   *
   * @throws {TypeError} when `ref` is no reference.
   */
  stop(ref?: ActorRef, options?: StopOptions): void;
}

/** How a system is made. */
export interface SystemOptions {
  /** Root of all that is random. Default 0. */
  readonly seed?: number;
  /** Picks the next message among the actors of this isolate. Default: the oldest first. */
  readonly choose?: Choose;
  /** The clock of the actors of this isolate, in milliseconds. Default: the wall clock. */
  readonly now?: () => number;
  /** How every isolate makes what observes it: a journal. Default: nothing does. */
  readonly observer?: ObserverSpec;
  /** Called for every dead letter, from whichever isolate. */
  readonly onDeadLetter?: (letter: DeadLetter) => void;
  /** Other places for actors than `local`, `worker` and `process`, each named by its transport. */
  readonly transport?: Transport | readonly Transport[];
  /** How long an actor in a worker or process may take to stop before that is ended. Default
   * 5,000. */
  readonly stopGraceMs?: number;
}

/** How the owner of a system ends it, or one of its actors. */
export interface SystemStopOptions extends StopOptions {
  /** Ends the draining: what has not been handled when it aborts becomes dead letters. */
  readonly signal?: AbortSignal;
}

/** Nobody will handle a message. */
export interface DeadLetterEvent {
  /** Tells it from other events. */
  readonly type: "dead-letter";
  /** Whose it was, and why. */
  readonly letter: DeadLetter;
  /** A copy of the message; absent where it cannot be copied. */
  readonly message?: unknown;
}

/** A step has taken as long as the subscriber's limit; told once for each step. */
export interface SlowStepEvent {
  /** Tells it from other events. */
  readonly type: "slow-step";
  /** Id of the actor. */
  readonly actor: string;
  /** The type of its message and what it says it does: `Forward (2F0)`. */
  readonly handling: string;
  /** Milliseconds since it began. */
  readonly forMs: number;
  /** It is over: it held up its isolate until then, so nobody could tell before. */
  readonly isOver: boolean;
  /** Ids of those whose answers it waits for. */
  readonly waitsFor: readonly string[];
}

/** What happens in a system, in any of its isolates, that its owner may want to know of. */
export type SystemEvent = DeadLetterEvent | SlowStepEvent;

/** What a subscriber wants to be told of besides dead letters. */
export interface Subscription {
  /** Milliseconds after which a step is told of. Absent: none is. */
  readonly slowStepMs?: number | undefined;
}

/** Actors, and the isolates they live in; see {@linkcode createSystem}. */
export interface System extends AsyncDisposable {
  /** Makes an actor at the top of the tree. See {@linkcode Context.spawn}. */
  spawn<I, T extends Message>(
    spec: ActorSpec<I, T>,
    init: NoInfer<I>,
    options: SpawnOptions,
  ): ActorRef<T>;
  /** Sends a message in the name of "system". See {@linkcode Context.send}. */
  send<T extends Message>(to: ActorRef<T>, message: NoInfer<T>, options?: SendOptions): void;
  /** Asks in the name of "system". See {@linkcode Context.ask}. */
  readonly ask: AskCall;
  /** Calls `onDown` exactly once when `ref` stops, fails or is gone. */
  watch(ref: ActorRef, onDown: (down: Down) => void): void;
  /** What reaches the places that its actors can be put in; none where time is virtual. */
  readonly transports: readonly Transport[];
  /** The newest dead letters, oldest first, at most {@linkcode MAX_DEAD_LETTERS}. */
  readonly deadLetters: readonly DeadLetter[];
  /**
   * Calls `listener` for what happens from now on, in the order in which this isolate learns of it.
   * Nothing is kept for it, and what it throws fails the system. Isolates that are told of it later
   * than something happens there tell of dead letters without what they hold.
   *
   * @example Dead letters with what they hold
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
   * @returns ends the subscription when it is disposed of.
   * @throws {RangeError} when `slowStepMs` is not a number of 0 or more.
   */
  subscribe(listener: (event: SystemEvent) => void, options?: Subscription): Disposable;
  /**
   * A number that grows while any isolate is {@linkcode Context.busy} or has been since this was
   * called last. Absent where time is virtual.
   */
  readonly activity?: () => number;
  /**
   * Rejects with {@linkcode ActorFailedError} at the first failure that no parent watches, and when an
   * observer throws. A failure
   * that nobody waits for here either ends the program, as any rejection does.
   */
  readonly failed: Promise<never>;
  /**
   * Stops all actors, the last spawned first, and ends their workers and processes. Resolves
   * always: a worker or process that does not stop is ended, and a handler of this isolate, or a
   * loop of a worker, that never ends is left behind.
   */
  stop(options?: SystemStopOptions): Promise<void>;
  /**
   * Stops one actor that this system has spawned, and all below it; the others go on. Resolves
   * always, as above, and at once when it has ended; from then on its id may be given again.
   */
  stop(ref: ActorRef, options?: SystemStopOptions): Promise<void>;
}

/** Dead letters that {@linkcode System.deadLetters} keeps. */
export const MAX_DEAD_LETTERS = 1000;

/** A message that may be handled next. */
export interface Candidate {
  /** Id of the actor that would handle it. */
  readonly actor: string;
  /** The lane it waits in. */
  readonly lane: Lane;
  /** Id of the sender. */
  readonly from: string;
  /** Type of the message; `init`, `finish` and `answer:…` are what the runtime lets an actor do. */
  readonly type: string;
  /** Counts what was enqueued in the isolate: a lower one is older. */
  readonly seq: number;
  /** How many messages came from this sender to this actor before. */
  readonly nth: number;
}

/**
 * Picks the next message by its index. Candidates stand in one order everywhere: control before
 * data, then the oldest first. So 0 is what happens without a `Choose`. A message behind another
 * of the same sender and lane is no candidate.
 *
 * @example The newest message first, as far as the order of each sender allows
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
