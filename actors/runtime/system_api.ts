/**
 * The system of actors as its owner sees it.
 *
 * @module
 */

import type { Choose } from "./mailbox/choose.ts";
import type { AskCall, SendOptions, SpawnOptions, StopOptions } from "./context_api.ts";
import type { DeadLetter, Down } from "./failure.ts";
import type { ObserverSpec } from "./observer.ts";
import type { Transport } from "./transports/transport.ts";
import type { ActorRef, ActorSpec, Message } from "./types.ts";

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
