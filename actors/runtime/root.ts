/**
 * The root isolate: the top of the actor tree, in any environment.
 *
 * @module
 */

import { Actor, keyOf, SYSTEM_SERIAL } from "./actor.ts";
import { ask, failAsks } from "./asks.ts";
import { checkSubscription } from "./checks.ts";
import {
  type AskCall,
  MAX_DEAD_LETTERS,
  type Subscription,
  type System,
  type SystemEvent,
  type SystemStopOptions,
} from "./context.ts";
import { deliver, isolateGone, rejectFrame } from "./deliver.ts";
import { ActorFailedError, type DeadLetter, describeFailure, type Failure } from "./failure.ts";
import { type Environment, Isolate, sendMessage, subscribe } from "./isolate.ts";
import type { IsolateRegistry, Root } from "./isolates.ts";
import { cancelTimers, endChild, stop, stopNow, watch } from "./lifecycle.ts";
import { FIRST_SERIAL, spawn } from "./spawning.ts";
import { run } from "./steps.ts";
import type { Transport } from "./transport.ts";
import { type ActorRef, isRef, type Message } from "./types.ts";

/**
 * Creates {@linkcode System.stop} of a system.
 *
 * @param self the top actor: the system itself.
 * @param emptied resolved when the last actor has ended or is left behind.
 * @param close ends the other isolates.
 */
function openEnding(
  isolate: Isolate,
  self: Actor,
  emptied: PromiseWithResolvers<void>,
  close: () => Promise<void>,
): System["stop"] {
  let ended: Promise<void> | undefined;
  const begin = (drains: boolean) => {
    if (!drains) return stopNow(isolate, self);
    self.isDraining = true;
    stop(isolate, self);
  };
  const { hurry, end } = openStop(isolate, begin, () => {
    leaveBehind(isolate);
    emptied.resolve();
  });
  return (first: ActorRef | SystemStopOptions = {}, options: SystemStopOptions = {}) => {
    if (isRef(first)) return endOne(isolate, self, first, options);
    // A stop without draining does not wait for a draining one.
    if (ended && !isDraining(first)) hurry();
    return ended ??= end(first, emptied.promise).then(close);
  };
}

/** Stops a child of the system; resolves when it has ended, or takes too long. */
function endOne(
  isolate: Isolate,
  self: Actor,
  ref: ActorRef,
  options: SystemStopOptions,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const begin = (drains: boolean) =>
    void endChild(isolate, self, ref, drains).then(resolve, reject);
  return openStop(isolate, begin, resolve).end(options, promise);
}

/**
 * Opens a stop, which may drain until its signal aborts. Then it has twice the grace.
 *
 * @param begin starts it, and is called again without draining.
 * @param late called when it takes longer.
 */
function openStop({ env }: Isolate, begin: (drains: boolean) => void, late: () => void) {
  let cancel: (() => void) | undefined;
  const hurry = () => {
    cancel ??= env.clock.after(2 * env.stopGraceMs, late);
    begin(false);
  };
  return {
    hurry,
    /** Starts it; resolves at its end. */
    async end(options: SystemStopOptions, ended: Promise<void>): Promise<void> {
      const { signal } = options;
      signal?.addEventListener("abort", hurry, { once: true });
      if (isDraining(options)) begin(true);
      else hurry();
      await ended;
      signal?.removeEventListener("abort", hurry);
      cancel?.();
    },
  };
}

function isDraining({ drain = false, signal }: SystemStopOptions): boolean {
  return drain && !signal?.aborted;
}

/** Cancels timers and questions that would keep the program running if a handler of this isolate
 * never ends. */
function leaveBehind(isolate: Isolate): void {
  for (const actor of isolate.actors.values()) {
    cancelTimers(actor);
    for (const { cancelKill } of actor.children.values()) cancelKill?.();
  }
  failAsks(isolate);
}

/** Callbacks of the owner of a system, without subscribers. */
type Callbacks = Pick<World, "onDeadLetter" | "onFailure">;

/** Dead letters, failures and events of a system. */
class Reports {
  readonly deadLetters: DeadLetter[] = [];
  readonly #failed = Promise.withResolvers<never>();
  /** See {@linkcode System.failed}. */
  readonly failed: Promise<never> = this.#failed.promise;
  readonly #subscribers = new Set<{ listener: (event: SystemEvent) => void } & Subscription>();

  /** @param callbacks callbacks of the owner. */
  constructor(private readonly callbacks: Callbacks) {}

  readonly onFailure = (failure: Failure): void => {
    this.callbacks.onFailure?.(failure);
    this.#failed.reject(new ActorFailedError(failure));
  };

  /** Calls all subscribers. */
  readonly onEvent = (event: SystemEvent): void => {
    for (const { listener } of [...this.#subscribers]) {
      this.guard(event.type, () => listener(event));
    }
  };

  readonly onDeadLetter = (letter: DeadLetter, message?: unknown): void => {
    this.deadLetters.push(letter);
    if (this.deadLetters.length > MAX_DEAD_LETTERS) this.deadLetters.shift();
    this.guard(`dead letter ${letter.type}`, () => this.callbacks.onDeadLetter?.(letter));
    this.onEvent({ type: "dead-letter", letter, ...message !== undefined && { message } });
  };

  /** Calls a callback of the owner and turns its error into a failure. */
  guard(handling: string, call: () => void): void {
    try {
      call();
    } catch (error) {
      this.onFailure(describeFailure("system", "throw", error, handling));
    }
  }

  /** Adds a subscriber. `want` is called with the combined subscription, undefined if there is
   * none. */
  subscribe(
    listener: (event: SystemEvent) => void,
    options: Subscription | undefined,
    want: (wanted: Subscription | undefined) => void,
  ): Disposable {
    checkSubscription(listener, options);
    const subscriber = { listener, ...options };
    this.#subscribers.add(subscriber);
    want(this.#wanted());
    return {
      [Symbol.dispose]: () => {
        if (this.#subscribers.delete(subscriber)) want(this.#wanted());
      },
    };
  }

  #wanted(): Subscription | undefined {
    if (this.#subscribers.size === 0) return undefined;
    const limits = [...this.#subscribers].flatMap(({ slowStepMs = [] }) => slowStepMs);
    return limits.length === 0 ? {} : { slowStepMs: Math.min(...limits) };
  }
}

/** The environment of a system: its clock, message order, yielding and other isolates. */
export interface World
  extends Omit<Environment, "network" | "places" | "collectives" | "heartbeat" | `on${string}`> {
  /** The dispatch loop. Default: {@linkcode run}. */
  readonly run?: (isolate: Isolate) => Promise<void>;
  /** Called with the isolate before it is used. */
  readonly attach?: (isolate: Isolate) => void;
  /** Called immediately when a failure reaches the top, before `failed` rejects. */
  readonly onFailure?: (failure: Failure) => void;
  /** Transports of the other isolates. Default: none. */
  readonly transports?: readonly Transport[];
  /** Creates the registry of the other isolates. Absent: there are none. */
  readonly connect?: (root: Root) => IsolateRegistry;
  readonly onDeadLetter?: ((letter: DeadLetter) => void) | undefined;
}

/** Creates a system in an environment. */
export function openSystem(world: World): System {
  const { system: token, seed, clock, stopGraceMs, transports } = world;
  const reports = new Reports(world);
  const emptied = Promise.withResolvers<void>();
  const registry = world.connect?.({
    system: token,
    seed,
    stopGraceMs,
    observer: world.observer && "module" in world.observer ? world.observer : undefined,
    onDeadLetter: reports.onDeadLetter,
    deliver: (frame) => isolate.deliver(frame),
    reject: (to, frame, why) => rejectFrame(isolate, to, frame, why),
    isolateGone: (number, reason) => isolateGone(isolate, number, reason),
  });
  const env: Environment = {
    ...world,
    ...registry && { network: registry },
    ...transports && { places: transports },
    onDeadLetter: reports.onDeadLetter,
    onEvent: reports.onEvent,
    onFailure: reports.onFailure,
    onEmpty: () => emptied.resolve(),
  };
  const isolate = new Isolate(0, env, deliver, world.run ?? run);
  const self = addTop(isolate);
  world.attach?.(isolate);
  const system: System = {
    spawn: (spec, init, options) => spawn(isolate, self, spec, init, options),
    send: (to, message, options) => sendMessage(isolate, self.ref, to, message, options),
    ask:
      ((to: ActorRef, message: Message, options?: object) =>
        ask(isolate, self.ref, undefined, to, message, options)) as AskCall,
    watch: (ref, onDown) =>
      watch(isolate, ref, undefined, (down) => {
        reports.guard(`end of ${ref.id}`, () => onDown(down));
      }),
    transports: transports ?? [],
    deadLetters: reports.deadLetters,
    subscribe: (listener, options) =>
      reports.subscribe(listener, options, (wanted) => subscribe(isolate, wanted)),
    ...clock.advance ? {} : { activity: activityOf(isolate, registry) },
    failed: reports.failed,
    stop: openEnding(isolate, self, emptied, async () => await registry?.close()),
    [Symbol.asyncDispose]: () => system.stop(),
  };
  return system;
}

/** Creates the top of the tree: the system as an actor. */
function addTop(isolate: Isolate): Actor {
  const { system } = isolate.env;
  const address = { id: "system", isolate: isolate.number, serial: SYSTEM_SERIAL };
  const top = new Actor({ ...address, ...system !== undefined && { system } }, undefined, 1);
  top.state = "ready";
  isolate.actors.set(SYSTEM_SERIAL, top);
  isolate.ids.set(top.ref.id, keyOf(top.ref));
  isolate.nextSerial = FIRST_SERIAL;
  return top;
}

/** Returns the function of {@linkcode System.activity}. */
function activityOf(isolate: Isolate, registry: IsolateRegistry | undefined): () => number {
  let stirred = 0;
  return () => {
    if (isolate.heartbeat.isAlive()) stirred++;
    return stirred + (registry?.activity() ?? 0);
  };
}
