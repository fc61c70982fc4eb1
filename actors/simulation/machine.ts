/**
 * Parts of a simulated run: external work, the waits of the scenario, and the state of all actors.
 *
 * [Note: external work takes no time] The real duration of external work must not affect a run. So the
 * simulation waits for it before it continues, and work ends in the order in which it was started. Its
 * end is a message like any other, whose order the strategy chooses.
 *
 * @module
 */

import { type Actor, keyOf } from "../runtime/actor.ts";
import type { Offers } from "../runtime/choose.ts";
import type { Isolate } from "../runtime/isolate.ts";
import type { Envelope } from "../runtime/mailbox.ts";
import type { VirtualClock } from "./chooser.ts";
import { Digest } from "./digest.ts";
import { exempt } from "./determinism_guard.ts";

/** External work in progress. */
export class External {
  #last: Promise<unknown> | undefined;

  /** Starts external work, which may use forbidden globals. It ends after all earlier work. */
  readonly run = <T>(work: () => T | Promise<T>): Promise<T> => {
    const before = this.#last, result = exempt(async () => await work());
    const end = before ? before.then(() => result) : result;
    this.#last = end.then(() => {}, () => {});
    return end;
  };

  /** Resolves when all work has ended; undefined without work. */
  ended(): Promise<unknown> | undefined {
    const last = this.#last;
    this.#last = undefined;
    return last;
  }
}

/** The waits of a scenario, which limit the clock. */
export class ScenarioWaits {
  /** True if something ended for which the scenario may be waiting. */
  isVisible = false;
  /** True if the scenario determines how far time passes. */
  isTimed = false;
  readonly #openAsks = new Set<number>();
  /** Waits for anything but answers, each up to a moment. */
  #waiters: { readonly until: number; readonly resolve: () => void }[] = [];
  #isClosed = false;

  /** @param clock the clock to limit. */
  constructor(private readonly clock: VirtualClock) {}

  /** True if the scenario waits for anything but answers. */
  get isWaiting(): boolean {
    return this.#waiters.length > 0;
  }

  /** Adds a wait for an answer. */
  forAnswer(ask: number): void {
    this.#openAsks.add(ask);
    this.#setLimit();
  }

  /** Removes the waits for answers that have arrived. */
  lookAtAnswers(open: { has(ask: number): boolean }): void {
    for (const ask of this.#openAsks) {
      if (open.has(ask)) continue;
      this.#openAsks.delete(ask);
      this.#setLimit();
      this.isVisible = true;
    }
  }

  /** Waits until no actor can continue, or for a moment. */
  until(moment: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiters.push({ until: moment, resolve });
      this.#setLimit();
    });
  }

  /** Ends the waits up to a moment. */
  wake(moment = Infinity): void {
    const reached = this.#waiters.filter(({ until }) => until <= moment);
    this.#waiters = this.#waiters.filter(({ until }) => until > moment);
    this.#setLimit();
    for (const { resolve } of reached) resolve();
  }

  /** Stops limiting the clock, after the end of the scenario. */
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
 * Returns the digest of everything that determines the rest of a run: states, queues, asks and timers.
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

/** Adds a queue; with a queue for each sender, the order between senders does not count. */
function addQueue(digest: Digest, queue: readonly Envelope[], offers: Offers): void {
  const sorted = offers === "by-arrival" ? queue : queue.toSorted((a, b) => {
    const left = `${a.lane} ${keyOf(a.from)}`, right = `${b.lane} ${keyOf(b.from)}`;
    return left < right ? -1 : left > right ? 1 : a.seq - b.seq;
  });
  digest.word(sorted.length);
  for (const { lane, from, message } of sorted) digest.text(lane).text(from.id).value(message);
}

/** Describes the actors that wait for a message without a running timer. */
export function describeIdle(isolate: Isolate): string[] {
  const idle: string[] = [];
  for (const { ref, parent, state, step, mailbox, timers, handlers } of isolate.actors.values()) {
    if (!parent || state !== "ready" || step || mailbox.head()) continue;
    if ([...timers.values()].some(({ envelope }) => !envelope)) continue;
    idle.push(`"${ref.id}" waits for a message (${Object.keys(handlers).join(", ")})`);
  }
  return idle;
}

/** Describes open asks, and handlers that have not ended. */
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
