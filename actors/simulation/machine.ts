/**
 * The digest of a whole simulated system, for searches that must know where they have been.
 *
 * [Note: outside takes no time] How long it really takes must decide nothing. So nothing else is
 * done until it has ended, and what is begun later ends later; then its end is a message like any
 * other, whose turn the strategy chooses.
 *
 * @module
 */

import { type Actor, keyOf } from "../runtime/actor.ts";
import type { Offers } from "../runtime/choose.ts";
import type { Isolate } from "../runtime/isolate.ts";
import type { Envelope } from "../runtime/mailbox.ts";
import type { AskCall, System } from "../runtime/mod.ts";
import type { ActorRef, Message } from "../runtime/types.ts";
import type { Chooser, VirtualClock } from "./chooser.ts";
import { Digest } from "./digest.ts";
import type { SimulatedDisk } from "./disk.ts";
import type { Dying } from "./faults.ts";
import type { Recorder } from "./recorder.ts";
import type { RunView, Settling, SimulateOptions, World } from "./run.ts";
import { exempt } from "./traps.ts";
import type { Verdict } from "./verdict.ts";

/** Work outside that is under way. */
export class External {
  #last: Promise<unknown> | undefined;

  /** Does something outside, where the traps do not matter; ends after what was begun before. */
  readonly run = <T>(work: () => T | Promise<T>): Promise<T> => {
    const before = this.#last, result = exempt(async () => await work());
    const end = before ? before.then(() => result) : result;
    this.#last = end.then(() => {}, () => {});
    return end;
  };

  /** All that was begun has ended; undefined when nothing was. */
  ended(): Promise<unknown> | undefined {
    const last = this.#last;
    this.#last = undefined;
    return last;
  }
}

/** The waits of a scenario. */
export class ScenarioWaits {
  /** Something ended that the scenario may wait for. */
  isVisible = false;
  /** The scenario says how far time goes. */
  isTimed = false;
  readonly #openAsks = new Set<number>();
  /** What it waits for besides answers, and until which moment. */
  #waiters: { readonly until: number; readonly resolve: () => void }[] = [];
  #isClosed = false;

  /** @param clock the time that must not pass too far. */
  constructor(private readonly clock: VirtualClock) {}

  /** Whether the scenario waits for anything but answers. */
  get isWaiting(): boolean {
    return this.#waiters.length > 0;
  }

  /** The scenario waits for an answer. */
  forAnswer(ask: number): void {
    this.#openAsks.add(ask);
    this.#setLimit();
  }

  /** Sees which answers have come. */
  lookAtAnswers(open: { has(ask: number): boolean }): void {
    for (const ask of this.#openAsks) {
      if (open.has(ask)) continue;
      this.#openAsks.delete(ask);
      this.#setLimit();
      this.isVisible = true;
    }
  }

  /** The scenario waits until nobody can do anything, or for a moment. */
  until(moment: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiters.push({ until: moment, resolve });
      this.#setLimit();
    });
  }

  /** Lets the scenario go on where it waits for no later moment than this. */
  wake(moment = Infinity): void {
    const reached = this.#waiters.filter(({ until }) => until <= moment);
    this.#waiters = this.#waiters.filter(({ until }) => until > moment);
    this.#setLimit();
    for (const { resolve } of reached) resolve();
  }

  /** The scenario is over: the clock is somebody else's. */
  close(): void {
    this.#isClosed = true;
  }

  #setLimit(): void {
    if (this.#isClosed) return;
    const isOpen = !this.isTimed || this.#openAsks.size > 0;
    this.clock.limit = this.isWaiting
      ? Math.min(...this.#waiters.map(({ until }) => until))
      : isOpen
      ? Infinity
      : this.clock.now();
  }
}

/**
 * What is done with messages: the strategy chooses and faults happen; or the scenario has them
 * handled in plain order (settle); or nothing of them counts any more (close).
 */
type Mode = "explore" | "settle" | "close";

/** A simulated run. */
export interface RunState {
  readonly options: SimulateOptions<unknown>;
  /** The system whose actors it plays with. */
  readonly system: System;
  readonly isolate: Isolate;
  /** The disk that actors may write to. */
  readonly disk: SimulatedDisk;
  readonly clock: VirtualClock;
  readonly chooser: Chooser;
  readonly recorder: Recorder;
  readonly view: RunView;
  readonly verdict: Verdict;
  readonly waits: ScenarioWaits;
  readonly external: External;
  /** Gives the world back what was trapped. */
  readonly removeTraps: () => void;
  mode: Mode;
  /** Number of steps after which the settling ends. */
  settleUntil: number;
  /** The actor at work, if it crashes before the end of its handler. */
  dying: Dying | undefined;
  /** A handler or the scenario does not end, and nothing waits for it any longer. */
  isHanging: boolean;
  /** Who waits for a message when nobody can do anything any more. */
  idle: readonly string[];
}

/** Opens the world of a run. */
export function openWorld<C>(run: RunState): World<C> {
  const { waits, clock, verdict } = run;
  return {
    system: watched(run),
    configuration: run.options.configuration as C,
    async settle(until = {}) {
      const given = typeof until === "number" ? { steps: until } : until;
      const { steps = Infinity, ms = Infinity } = given as Settling;
      run.mode = "settle";
      run.settleUntil = run.recorder.steps + steps;
      waits.isTimed ||= ms < Infinity;
      await idle(run, clock.now() + ms);
      run.mode = "explore";
    },
    idle: () => idle(run, Infinity),
    async advance(ms) {
      if (!(ms >= 0)) throw new RangeError(`Cannot advance: ms must be 0 or more, received ${ms}`);
      waits.isTimed = true;
      await idle(run, clock.now() + ms);
    },
    invariant: (name, check) => void verdict.invariants.push({ name, check }),
    eventually: (name, check, options = {}) => verdict.duties.add(name, check, options, run.view),
    disk: run.disk,
    atEnd: (name, check) => void verdict.endings.push({ name, check }),
  };
}

/** Waits until nobody can do anything, or for a moment of virtual time. */
export function idle({ waits, isolate }: RunState, until: number): Promise<void> {
  const reached = waits.until(until);
  isolate.wake();
  return reached;
}

/** The system as the scenario gets it: tells the loop what the scenario waits for. */
function watched({ waits, isolate, system }: RunState): System {
  return {
    ...system,
    ask: ((to: ActorRef<Message>, message: Message, options?: object) => {
      waits.forAnswer(isolate.nextAsk);
      return system.ask(to, message, options);
    }) as AskCall,
    watch: (ref, onDown) =>
      system.watch(ref, (down) => {
        waits.isVisible = true;
        onDown(down);
      }),
  };
}

/**
 * Digest of what decides how a run goes on: states, queues, questions and timers.
 *
 * @throws {TypeError} when an actor does not expose its state.
 */
export function stateOf(isolate: Isolate, clock: VirtualClock, offers: Offers): number {
  const digest = new Digest();
  for (const actor of isolate.actors.values()) {
    if (!actor.parent) continue;
    digest.text(actor.ref.id).text(actor.state).value(exposed(actor));
    digest.text(actor.step?.envelope.message.type ?? "").word(actor.step?.asks.size ?? 0);
    addQueue(digest, [...actor.agenda, ...actor.mailbox], offers);
  }
  for (const { from, to, type } of isolate.asks.values()) {
    digest.text(from.id).text(to.id).text(type);
  }
  return digest.value(clock.remaining()).toNumber();
}

function exposed(actor: Actor): unknown {
  if (actor.expose || actor.state !== "ready") return actor.expose?.();
  throw new TypeError(
    `Cannot count states: "${actor.ref.id}" must call ctx.expose when it is made`,
  );
}

/** Where senders have queues of their own, the order between two of them decides nothing. */
function addQueue(digest: Digest, queue: readonly Envelope[], offers: Offers): void {
  const sorted = offers === "by-arrival" ? queue : queue.toSorted((a, b) => {
    const left = `${a.lane} ${keyOf(a.from)}`, right = `${b.lane} ${keyOf(b.from)}`;
    return left < right ? -1 : left > right ? 1 : a.seq - b.seq;
  });
  digest.word(sorted.length);
  for (const { lane, from, message } of sorted) digest.text(lane).text(from.id).value(message);
}

/** Who waits for a message that nobody is about to send, in words; for reports. */
export function describeIdle(isolate: Isolate): string[] {
  const idle: string[] = [];
  for (const { ref, parent, state, step, mailbox, timers, handlers } of isolate.actors.values()) {
    if (!parent || state !== "ready" || step || mailbox.head()) continue;
    if ([...timers.values()].some(({ envelope }) => !envelope)) continue;
    idle.push(`"${ref.id}" waits for a message (${Object.keys(handlers).join(", ")})`);
  }
  return idle;
}

/** Who waits for whom, in words; for reports. */
export function describeWaits(isolate: Isolate): string[] {
  const waits: string[] = [];
  for (const { from, to, type } of isolate.asks.values()) {
    const other = [...isolate.actors.values()].find(({ ref }) => keyOf(ref) === keyOf(to));
    const queue = other
      ? `${[...other.mailbox].length} messages wait there`
      : to.serial < 0
      ? "it is no actor"
      : "it is gone";
    waits.push(`"${from.id}" waits for "${to.id}" to answer "${type}"; ${queue}`);
  }
  for (const { ref, step } of isolate.actors.values()) {
    if (!step || step.isSettled || step.asks.size > 0) continue;
    waits.push(`"${ref.id}" has not ended "${step.envelope.message.type}"`);
  }
  return waits;
}
