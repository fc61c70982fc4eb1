/**
 * A simulated run as data: what is asked of it, and what it was.
 *
 * @module
 */

import type { Offers } from "../runtime/choose.ts";
import { ActorFailedError } from "../runtime/failure.ts";
import type { Isolate } from "../runtime/isolate.ts";
import type { DeadLetter, System } from "../runtime/mod.ts";
import type { SimulatedDisk } from "./disk.ts";
import { type Fault, type FaultOptions, named } from "./faults.ts";
import type { StepRecord } from "./recorder.ts";
import type { Deviation, RunStart, Strategy } from "./strategies.ts";

/** What went wrong in a run. */
export interface SimulationFailure {
  /**
   * `actor`: an actor failed and nobody watched it. `invariant`: an invariant did not hold.
   * `determinism`: an actor used a clock or chance of its own. `diverged`: two runs of one schedule
   * differed. `liveness`: something did not come true in time. `deadlock`: nobody can do anything and somebody waits. `livelock`: no end after
   * {@linkcode SimulateOptions.maxSteps}. `scenario`: the scenario itself threw. `replay`: the run
   * is not the one that was recorded.
   */
  readonly kind:
    | "actor"
    | "invariant"
    | "determinism"
    | "diverged"
    | "liveness"
    | "deadlock"
    | "livelock"
    | "scenario"
    | "replay";
  /** Name of the error or of the invariant. */
  readonly name: string;
  /** What happened. */
  readonly message: string;
  /** Steps before. */
  readonly step: number;
  /** Who waits for whom, when somebody does. */
  readonly waits: readonly string[];
}

/**
 * The class of a failure: two of one class are the same bug, as far as a machine can tell. Invariants
 * are told apart by their names, deadlocks by who waits for whom, and what was thrown by its first
 * line, numbers in it aside.
 *
 * @example
 * ```ts
 * import { classOf } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const failure = { kind: "invariant", name: "stash", message: "", step: 3, waits: [] } as const;
 * assert.equal(classOf(failure), "invariant: stash");
 * ```
 */
export function classOf({ kind, name, message, waits }: SimulationFailure): string {
  const head = `${kind}: ${name}`;
  if (kind === "deadlock") return [head, ...waits.map(withoutQueue).sort()].join("\n  ");
  if (kind !== "actor" && kind !== "scenario") return head;
  return `${head}: ${withoutNumbers(message.split("\n", 1)[0]!)}`;
}

/**
 * The class of a failure whatever the size of what fails: in a smaller configuration the same bug
 * may show in fewer actors, and in others of their kind.
 */
export function looseClassOf(failure: SimulationFailure): string {
  return [...new Set(classOf(failure).split("\n  ").map(withoutNumbers))].join("\n  ");
}

/** Who waits for whom, however many messages wait there. */
function withoutQueue(wait: string): string {
  const end = wait.lastIndexOf("; ");
  return end < 0 ? wait : wait.slice(0, end);
}

/** Numbers and hashes differ from order to order. */
function withoutNumbers(text: string): string {
  return text.replace(/[0-9a-f]{8,}|\d+(\.\d+)?(e[+-]?\d+)?/g, "#");
}

/** The failure that stands for an error. */
export function failureOf(
  kind: SimulationFailure["kind"],
  thrown: unknown,
  step: number,
  waits: readonly string[] = [],
): SimulationFailure {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const { name } = error instanceof ActorFailedError ? error.failure.error : error;
  return { kind, name, message: error.message, step, waits };
}

/**
 * A simulated run failed; thrown by {@linkcode simulationTest} and {@linkcode checkScenario}.
 *
 * @example
 * ```ts
 * import { checkScenario, SimulationError } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const error = await checkScenario("never", {}, ({ atEnd }) => {
 *   atEnd("something happened", ({ steps }) => steps === 0 ? "nothing did" : undefined);
 * }).catch((error) => error);
 * assert.ok(error instanceof SimulationError);
 * assert.equal(error.failure.name, "something happened");
 * ```
 */
export class SimulationError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "SimulationError";
  /**
   * Carries the failure.
   *
   * @param failure what went wrong.
   * @param message all that a reader needs to see it again.
   */
  constructor(readonly failure: SimulationFailure, message: string) {
    super(message);
  }
}

/** A simulated system between two steps. */
export interface View {
  /** Steps so far. */
  readonly steps: number;
  /** Id of the actor of the last step. */
  readonly actor: string;
  /** Type of the message of the last step. */
  readonly type: string;
  /** What the actor said it did in the last step: `2F0`. */
  readonly name: string;
  /** Virtual milliseconds. */
  readonly now: number;
  /** Ids of the living actors, in order of spawning. */
  readonly actors: readonly string[];
  /** What is buried so far. */
  readonly deadLetters: readonly DeadLetter[];
  /** What an actor exposes; undefined when there is none of this id or it exposes nothing. */
  state<T = unknown>(id: string): T | undefined;
  /** Messages that wait for an actor. */
  waiting(id: string): number;
}

/** Says what is wrong, as a text or by throwing; otherwise nothing. */
export type Check = (view: View) => string | undefined | void;

/** The view that a run keeps up to date after each step. */
export type RunView = { -readonly [K in keyof View]: View[K] };

/** The view of an isolate before its first step. */
export function viewOf(isolate: Isolate, deadLetters: readonly DeadLetter[]): RunView {
  const find = (id: string) => isolate.actors.values().find(({ ref }) => ref.id === id);
  return {
    ...{ steps: 0, actor: "", type: "", name: "", deadLetters },
    get now() {
      return isolate.env.clock.now();
    },
    get actors() {
      return [...isolate.actors.values()].filter(({ parent }) => parent).map(({ ref }) => ref.id);
    },
    state: <T>(id: string) => find(id)?.expose?.() as T | undefined,
    waiting: (id) => [...find(id)?.mailbox ?? []].length,
  };
}

/** When something has to come true, and by when. */
export interface EventuallyOptions {
  /** It has to come true after each moment at which this holds, the same moment included. Default:
   * once, from now on. */
  readonly when?: (view: View) => boolean;
  /** Virtual milliseconds that it may take. Default: until the end of the run. */
  readonly withinMs?: number;
  /** Steps that it may take. Default: until the end of the run. */
  readonly withinSteps?: number;
}

interface Duty extends EventuallyOptions {
  readonly name: string;
  readonly check: Check;
  /** Since when it has to come true. */
  since?: { readonly ms: number; readonly steps: number } | undefined;
}

/** What has to come true in a run. */
export class Duties {
  #duties: Duty[] = [];

  /** Adds a duty. */
  add(name: string, check: Check, options: EventuallyOptions, view: View): void {
    const since = options.when ? undefined : { ms: view.now, steps: view.steps };
    this.#duties.push({ ...options, name, check, since });
  }

  /**
   * Looks what has come true, and returns what is overdue. To be called after each change.
   *
   * @param isEnd nothing happens any more, so that what has not come true is overdue.
   */
  look(view: View, isEnd = false): Error | undefined {
    if (this.#duties.length === 0) return undefined;
    for (const duty of this.#duties) {
      const { name, when, withinMs = Infinity, withinSteps = Infinity } = duty;
      if (!duty.since && when?.(view)) duty.since = { ms: view.now, steps: view.steps };
      if (!duty.since) continue;
      const ms = view.now - duty.since.ms, steps = view.steps - duty.since.steps;
      const missing = problemOf(duty.check, view);
      if (missing === undefined) duty.since = undefined;
      // What comes true at a moment that is too late does not count.
      const isLate = ms > withinMs || steps > withinSteps;
      if (!isLate && (!isEnd || missing === undefined)) continue;
      const what = missing ?? "it came true";
      return named(name, `${what} ${ms} ms and ${steps} steps after it became due`);
    }
    this.#duties = this.#duties.filter(({ when, since }) => when || since);
    return undefined;
  }
}

/** What a check says is wrong, as a text or by throwing. */
export function problemOf(check: Check, view: View): string | undefined {
  try {
    return check(view) || undefined;
  } catch (error) {
    return error instanceof Error ? error.message || error.name : `${error}`;
  }
}

/** How long {@linkcode World.settle} goes on. */
export interface Settling {
  /** Most messages. Default: any number. */
  readonly steps?: number;
  /** Virtual milliseconds. Default: until no timer runs. */
  readonly ms?: number;
}

/**
 * The world of a scenario. Time stands still while the scenario's own code runs: the actors go on
 * when it waits for something of this world.
 *
 * @typeParam C what the scenario is configured with.
 */
export interface World<C = undefined> {
  /** The system; it lives under a virtual clock, and all its actors in one isolate. */
  readonly system: System;
  /** See {@linkcode SimulateOptions.configuration}. */
  readonly configuration: C;
  /**
   * Handles what waits in plain order, whatever the strategy: sets the stage.
   *
   * @param until most messages, or how long that takes. Default: until nobody can do anything.
   */
  settle(until?: number | Settling): Promise<void>;
  /** Waits until nobody can do anything and no timer runs. Where timers start again and again, use
   * {@linkcode World.advance}. */
  idle(): Promise<void>;
  /**
   * Lets virtual time pass, and what happens meanwhile happen. Once a scenario has called it, time
   * passes only in it, in `settle` and `idle`, and while an answer is awaited; at the end of the
   * scenario it stands still.
   *
   * @param ms how long, in virtual milliseconds.
   * @throws {RangeError} (as a rejection) when `ms` is not a number from 0 on.
   */
  advance(ms: number): Promise<void>;
  /** Has something checked after each step from now on. */
  invariant(name: string, check: Check): void;
  /**
   * Has something checked that must come true, as the check then says by returning nothing: once
   * from now on, or each time that `when` holds, in the time that is given, or before the run ends.
   */
  eventually(name: string, check: Check, options?: EventuallyOptions): void;
  /** A disk of this run, empty at first, which fails as the faults of the run say. */
  readonly disk: SimulatedDisk;
  /** Has something checked once, when the scenario is over and nobody can do anything. */
  atEnd(name: string, check: Check): void;
}

/**
 * How a run goes.
 *
 * @typeParam C what the scenario is configured with.
 */
export interface SimulateOptions<C = undefined> {
  /** Root of all that is random, for actors and strategy alike. Default 0. */
  readonly seed?: number;
  /** Who chooses. Default: {@linkcode fifo}. */
  readonly strategy?: Strategy;
  /** Instead of a strategy: plain order but for these steps, as a failure report prints them. */
  readonly deviations?: readonly Deviation[];
  /** What the scenario is given. */
  readonly configuration?: C;
  /** Faults to draw, or the very faults of another run. Default: none. */
  readonly faults?: FaultOptions | readonly Fault[];
  /**
   * What may be handled next: the oldest message of each sender (default: every order that real
   * lines can give), or the oldest that arrived, control before data.
   */
  readonly offers?: Offers;
  /**
   * How long, in virtual milliseconds, a message may wait though it could be handled: a strategy may
   * have timers that are due by then fire before it. Default {@linkcode RACE_MS}.
   */
  readonly raceMs?: number;
  /** Steps after which a run counts as endless. Default {@linkcode MAX_STEPS}. */
  readonly maxSteps?: number;
  /** Real milliseconds after which a handler counts as hanging. Default {@linkcode HANG_MS}. */
  readonly hangMs?: number;
  /**
   * URLs, or parts of URLs, of modules that may use clocks and chance, and have others use them:
   * devices. What they load while an actor is at work is a module of its own.
   */
  readonly trusted?: readonly string[];
  /** Whether messages have digests, so that the running hash tells payloads apart. Default true. */
  readonly digests?: boolean;
  /** Gets each step; the run is then several times as slow. */
  readonly onStep?: (step: StepRecord) => void;
  /** Gets each message before it is handled, with its digest. */
  readonly onMessage?: (digest: string, message: unknown) => void;
  /** Facts for the strategy, where the run is one of many; `begun` where the strategy has begun it.
   * Default: the run is the first. */
  readonly start?: Omit<RunStart, "seed"> | "begun";
}

/** Default of {@linkcode SimulateOptions.maxSteps}. */
export const MAX_STEPS = 1_000_000;

/** Default of {@linkcode SimulateOptions.raceMs}: what real machines make a message wait. */
export const RACE_MS = 1000;

/** Default of {@linkcode SimulateOptions.hangMs}. */
export const HANG_MS = 5000;

/**
 * What a run was.
 *
 * @typeParam T what the scenario returned.
 */
export interface Run<T = unknown> {
  /** See {@linkcode SimulateOptions.seed}. */
  readonly seed: number;
  /** Name of the strategy. */
  readonly strategy: string;
  /** Messages handled. */
  readonly steps: number;
  /** Choices that the strategy made: steps that were not settled, and waits. */
  readonly choices: number;
  /** Running hash over all steps, 16 hexadecimal digits. */
  readonly hash: string;
  /** Where the order was not plain: with these alone the run can be repeated. */
  readonly deviations: readonly Deviation[];
  /** Faults that happened. */
  readonly faults: readonly Fault[];
  /** Set when the run failed. */
  readonly failure?: SimulationFailure;
  /** Who is left at the end of a run in which nobody can do anything any more, and waits for a
   * message for ever; the messages that it knows. */
  readonly waiting: readonly string[];
  /** What the scenario returned, if it came to its end. */
  readonly value?: T;
}

/** What happens in a simulated system: spawns actors, sends, waits, and says what must hold. */
export type Scenario<T = unknown, C = undefined> = (world: World<C>) => Promise<T> | T;
