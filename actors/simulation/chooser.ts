/**
 * The parts of a simulated run: its clock, the choices, where the strategy chooses the order and the
 * faults occur, external work, the waits of the scenario, and the state of all actors.
 *
 * [Note: external work takes no time] The real duration of external work must not affect a run. So the
 * simulation waits for it before it continues, and work ends in the order in which it was started. Its
 * end is a message like any other, whose order the strategy chooses.
 *
 * @module
 */

import { type Actor, keyOf, NONE_YET, type Offers } from "../runtime/actor.ts";
import type { Envelope } from "../runtime/mailbox.ts";
import type { Isolate } from "../runtime/isolate.ts";
import type { Candidate } from "../runtime/mod.ts";
import type { Clock } from "../runtime/world.ts";
import { assertInput } from "../runtime/types.ts";
import { exempt } from "./determinism_guard.ts";
import { Digest } from "./digest.ts";
import type { DiskFault } from "./disk.ts";
import { drawnFaults, type Fault, type Faults, knownFaults } from "./faults.ts";
import type { Decision } from "./recorder.ts";
import { RACE_MS, type SimulateOptions } from "./run.ts";
import {
  addWait,
  deviate,
  type Deviation,
  fifo,
  type NextTimer,
  PRUNE,
  type Strategy,
  WAIT,
} from "./strategies.ts";

/** A clock whose time depends only on the actors. Timers of the same moment fire in the order in which
 * they were started. */
export class VirtualClock implements Clock {
  /** The moment that time must not pass. */
  limit = Infinity;
  #now = 0;
  /** Sorted, the next one last. Few timers run at a time, so an array is fast enough. */
  readonly #timers: { readonly at: number; readonly fire: () => void }[] = [];

  readonly now = (): number => this.#now;

  readonly after = (delayMs: number, fire: () => void): () => void => {
    if (delayMs === Infinity) return () => {};
    const timers = this.#timers, timer = { at: this.#now + Math.max(0, delayMs), fire };
    let index = timers.length;
    while (index > 0 && timers[index - 1]!.at <= timer.at) index--;
    timers.splice(index, 0, timer);
    return () => {
      const place = timers.indexOf(timer);
      if (place >= 0) timers.splice(place, 1);
    };
  };

  /** Fires the next timer, if it is due by the limit. */
  advance(): boolean {
    if (this.next() === undefined) return false;
    const next = this.#timers.pop()!;
    this.reach(next.at);
    next.fire();
    return true;
  }

  /** Lets time pass up to a moment. */
  reach(moment: number): void {
    this.#now = Math.max(this.#now, moment);
  }

  /** Lets time pass up to the limit, if no timer fires before. */
  reachLimit(): void {
    if (this.limit < Infinity) this.reach(this.limit);
  }

  /** Returns the moment of the next timer, if it is due by the limit. */
  next(): number | undefined {
    const at = this.#timers.at(-1)?.at;
    return at !== undefined && at <= this.limit ? at : undefined;
  }

  /** Returns the remaining milliseconds of each timer, in the order of firing. */
  remaining(): number[] {
    return this.#timers.map(({ at }) => at - this.#now).reverse();
  }
}

/** Result of {@linkcode Chooser.choose} if the rest of the run is known. */
export const PRUNED = -3;

/** Makes and records the choices of a run. */
export class Chooser {
  readonly strategy: Strategy;
  readonly faults: Faults;
  /** Number of choices by the strategy. */
  choices = 0;
  /** The choices of the next or running step. */
  readonly decision: Decision = { choice: 0, arity: 0, waits: 0, faults: [] };
  readonly #choices: Deviation[] = [];
  readonly #raceMs: number;
  /** Actors and edges whose messages must wait, and the end of the wait. */
  readonly #held = new Map<string, number>();
  /** When candidates that a timer overtook could first be handled, by their number. */
  readonly #since = new Map<number, number>();
  /** The last step for which faults were drawn. */
  #drawn = -1;
  /** Groups of actors that are disconnected from the others. */
  readonly #partitions = new Set<ReadonlySet<string>>();
  /** Number of messages on each edge so far. */
  readonly #delivered = new Map<string, number>();
  /** Number of calls of each site in this step. */
  readonly #asked = new Map<string, number>();

  /**
   * @param options seed, strategy and faults of the run.
   * @param clock measures the waits of actors and edges.
   */
  constructor(options: SimulateOptions<unknown>, private readonly clock: VirtualClock) {
    const { seed = 0, deviations, strategy, faults, raceMs = RACE_MS } = options;
    assertInput(raceMs >= 0, "Cannot simulate: raceMs must be 0 or more", raceMs);
    assertInput(Number.isInteger(seed), "Cannot simulate: seed must be a whole number", seed);
    if (faults && !deviations && strategy?.isExhaustive) {
      throw new TypeError(`Cannot explore by ${strategy.name}: it must have no faults to inject`);
    }
    this.#raceMs = raceMs;
    this.strategy = deviations ? deviate(deviations) : strategy ?? fifo();
    this.faults = faults && "kinds" in faults
      ? drawnFaults(seed, faults)
      : knownFaults(faults ?? []);
  }

  /** Differences from FIFO order. */
  get deviations(): readonly Deviation[] {
    return this.strategy.deviations ?? this.#choices;
  }

  /** Resets the choices after a step. */
  clear(): void {
    const { decision } = this;
    decision.choice = decision.arity = decision.waits = 0;
    if (decision.faults.length > 0) decision.faults = [];
    if (this.#asked.size > 0) this.#asked.clear();
  }

  /** Returns the index of the next candidate, {@linkcode NONE_YET} or {@linkcode PRUNED}. */
  choose(
    candidates: readonly Candidate[],
    step: number,
    state: () => number,
    actors: () => readonly string[],
  ): number {
    let open = this.#open(candidates);
    if (open.length > 0 && this.#drawn < step) {
      this.#drawn = step;
      const hold = this.#note(this.faults.holds(open, step, actors));
      if (hold) {
        this.#hold(hold);
        open = this.#open(candidates);
      }
    }
    if (open.length === 0) {
      this.#since.clear();
      return NONE_YET;
    }
    const now = this.clock.now(), sinceOf = (seq: number) => this.#since.get(seq) ?? now;
    const since = this.#since.size === 0 ? now : Math.min(...open.map(({ seq }) => sinceOf(seq)));
    this.choices++;
    const choice = this.strategy.choose(open, step, state, this.#timer(since));
    if (choice === PRUNE) return PRUNED;
    if (choice === WAIT) {
      for (const { seq } of open) this.#since.set(seq, sinceOf(seq));
      this.decision.waits++;
      addWait(this.#choices, step);
      return NONE_YET;
    }
    const chosen = open[choice];
    if (!chosen) {
      const must = `the choice of ${this.strategy.name} must be from 0 to ${open.length - 1}`;
      throw new RangeError(`Cannot simulate: ${must}, PRUNE or WAIT, received ${choice}`);
    }
    this.#since.delete(chosen.seq);
    this.decision.choice = choice;
    this.decision.arity = open.length;
    if (choice > 0) this.#choices.push({ step, choice });
    return open === candidates ? choice : candidates.indexOf(chosen);
  }

  /** Returns the crash of a step, if any. */
  crashOf(actor: string, step: number): Fault | undefined {
    return this.#note(this.faults.crashes(actor, step));
  }

  /** Returns whether a site fails. */
  failsAt(site: string, step: number): boolean {
    const nth = this.#asked.get(site) ?? 0;
    this.#asked.set(site, nth + 1);
    return this.#note(this.faults.failsAt(`${site}#${nth}`, step)) !== undefined;
  }

  /** Returns whether the next timer may fire before messages that could be handled `since` a moment. */
  #timer(since: number): NextTimer {
    const next = this.clock.next();
    if (next === undefined) return "none";
    // A stall must last for its full duration.
    if (this.#held.size > 0 && Math.min(...this.#held.values()) <= next) return "far";
    return next - since <= this.#raceMs ? "near" : "far";
  }

  #open(candidates: readonly Candidate[]): readonly Candidate[] {
    if (this.#held.size === 0) return candidates;
    return candidates.filter(({ actor, from }) =>
      !this.#held.has(actor) && !this.#held.has(`${from}>${actor}`)
    );
  }

  /** Returns the fault of the delivery of a message, if any. */
  delivery(from: string, to: string, step: number): Fault | undefined {
    const edge = `${from}>${to}`, nth = this.#delivered.get(edge) ?? 0;
    this.#delivered.set(edge, nth + 1);
    for (const side of this.#partitions) {
      if (side.has(from) !== side.has(to)) return { step, kind: "loss", target: `${edge}#${nth}` };
    }
    return this.#note(this.faults.delivery(`${edge}#${nth}`, to, step));
  }

  /** Returns the fault of a disk operation, if any. */
  failDisk(operation: number, needsRoom: boolean, step: number): DiskFault | undefined {
    const fault = this.#note(this.faults.failsDisk(operation, needsRoom, step));
    return fault?.kind.slice("disk-".length) as DiskFault | undefined;
  }

  #hold({ kind, target, forMs = 0 }: Fault): void {
    if (kind !== "partition") {
      this.#held.set(target, this.clock.now() + forMs);
      this.clock.after(forMs, () => void this.#held.delete(target));
      return;
    }
    const side = new Set(target.split("|"));
    this.#partitions.add(side);
    this.clock.after(forMs, () => void this.#partitions.delete(side));
  }

  #note(fault: Fault | undefined): Fault | undefined {
    if (fault) this.decision.faults.push(`${fault.kind} ${fault.target}`);
    return fault;
  }
}

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
  const must = `"${actor.ref.id}" must call ctx.expose when it is made`;
  throw new TypeError(`Cannot count states: ${must}`);
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
