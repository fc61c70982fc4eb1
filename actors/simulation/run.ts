/**
 * A simulated run as data: its options, its scenario and its result.
 *
 * @module
 */

import type { Offers } from "../runtime/actor.ts";
import { ActorFailedError } from "../runtime/failure.ts";
import type { Isolate } from "../runtime/isolate.ts";
import type { DeadLetter, System } from "../runtime/mod.ts";
import type { SimulatedDisk } from "./disk.ts";
import type { Fault, FaultOptions } from "./faults.ts";
import type { StepRecord } from "./recorder.ts";
import type { Deviation, RunStart, Strategy } from "./strategies.ts";

/** The failure of a run. */
export interface SimulationFailure {
  /**
   * `actor`: an actor failed and no actor watched it. `invariant`: an invariant did not hold.
   * `determinism`: an actor used a forbidden global. `diverged`: two runs of one order differed.
   * `liveness`: a condition did not become true in time. `deadlock`: no actor can continue, and some
   * wait. `livelock`: no end after {@linkcode SimulateOptions.maxSteps}. `scenario`: the scenario threw.
   * `replay`: the run differs from the recorded one.
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
  /** The error message. */
  readonly message: string;
  /** Number of steps before it. */
  readonly step: number;
  /** Descriptions of open asks and of handlers that have not ended. */
  readonly waits: readonly string[];
}

/**
 * Returns the class of a failure; two failures of one class are probably the same bug. Invariants
 * differ by name, deadlocks by the waiting actors, and errors by their first line without numbers.
 *
 * @example
 * ```ts
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
 * Returns the class of a failure independent of the size of the configuration: in a smaller one, the
 * same bug may affect fewer actors, or others of the same kind.
 */
export function looseClassOf(failure: SimulationFailure): string {
  return [...new Set(classOf(failure).split("\n  ").map(withoutNumbers))].join("\n  ");
}

/** Removes the number of waiting messages. */
function withoutQueue(wait: string): string {
  const end = wait.lastIndexOf("; ");
  return end < 0 ? wait : wait.slice(0, end);
}

/** Replaces numbers and hashes, which differ between orders. */
function withoutNumbers(text: string): string {
  return text.replace(/[0-9a-f]{8,}|\d+(\.\d+)?(e[+-]?\d+)?/g, "#");
}

/** Returns the failure for an error. */
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
  /** The name of the class, for code that cannot use `instanceof`. */
  override readonly name = "SimulationError";
  /**
   * Creates the error.
   *
   * @param failure the failure.
   * @param message the report, with the call that reproduces the failure.
   */
  constructor(readonly failure: SimulationFailure, message: string) {
    super(message);
  }
}

/** A simulated system between two steps. */
export interface View {
  /** Number of steps so far. */
  readonly steps: number;
  /** Id of the actor of the last step. */
  readonly actor: string;
  /** Type of the message of the last step. */
  readonly type: string;
  /** Activity that the actor set in the last step: `2F0`. */
  readonly name: string;
  /** Virtual milliseconds. */
  readonly now: number;
  /** Ids of the living actors, in order of spawning. */
  readonly actors: readonly string[];
  /** Dead letters so far. */
  readonly deadLetters: readonly DeadLetter[];
  /** Returns the exposed state of an actor; undefined if there is none. */
  state<T = unknown>(id: string): T | undefined;
  /** Returns the number of messages that wait for an actor. */
  waiting(id: string): number;
}

/** Returns or throws a problem; returns nothing if there is none. */
export type Check = (view: View) => string | undefined | void;

/** The view that a run updates after each step. */
export type RunView = { -readonly [K in keyof View]: View[K] };

/** Returns the view of an isolate before its first step. */
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

/** Options of {@linkcode World.eventually}. */
export interface EventuallyOptions {
  /** The condition must become true after each moment at which this returns true, possibly at the same
   * moment. Default: once, from now on. */
  readonly when?: (view: View) => boolean;
  /** Time limit in virtual milliseconds. Default: the end of the run. */
  readonly withinMs?: number;
  /** Limit in steps. Default: the end of the run. */
  readonly withinSteps?: number;
}

/** Limits of {@linkcode World.settle}. */
export interface Settling {
  /** Maximum number of messages. Default: unlimited. */
  readonly steps?: number;
  /** Maximum duration in virtual milliseconds. Default: until no timer runs. */
  readonly ms?: number;
}

/**
 * The world of a scenario. Time does not pass while the scenario's code runs: actors continue when it
 * awaits a promise of this world.
 *
 * @typeParam C configuration of the scenario.
 */
export interface World<C = undefined> {
  /** The system, with a virtual clock and all actors in one isolate. */
  readonly system: System;
  /** See {@linkcode SimulateOptions.configuration}. */
  readonly configuration: C;
  /**
   * Handles waiting messages in FIFO order, independent of the strategy, to prepare the scenario.
   *
   * @param until maximum number of messages, or limits. Default: until no actor can continue.
   */
  settle(until?: number | Settling): Promise<void>;
  /** Waits until no actor can continue and no timer runs. With recurring timers, use
   * {@linkcode World.advance}. */
  idle(): Promise<void>;
  /**
   * Lets virtual time pass while actors continue. After the first call, time passes only in `advance`,
   * `settle` and `idle`, and while the scenario awaits an answer; after the scenario it does not pass.
   *
   * @param ms virtual milliseconds.
   * @throws {RangeError} (as a rejection) when `ms` is negative or not a number.
   */
  advance(ms: number): Promise<void>;
  /** Adds a check that runs after each step from now on. */
  invariant(name: string, check: Check): void;
  /**
   * Adds a condition that must become true (the check then returns nothing): once from now on, or each
   * time after `when` returns true, within the given limits or before the run ends.
   */
  eventually(name: string, check: Check, options?: EventuallyOptions): void;
  /** The disk of this run, initially empty, with the faults of the run. */
  readonly disk: SimulatedDisk;
  /** Adds a check that runs once, after the scenario, when no actor can continue. */
  atEnd(name: string, check: Check): void;
}

/**
 * Options of {@linkcode simulate}.
 *
 * @typeParam C configuration of the scenario.
 */
export interface SimulateOptions<C = undefined> {
  /** Seed of all random numbers, of actors and of the strategy. Default 0. */
  readonly seed?: number;
  /** Chooses the order. Default: {@linkcode fifo}. */
  readonly strategy?: Strategy;
  /** Replaces the strategy: FIFO order except for these steps, as printed in a failure report. */
  readonly deviations?: readonly Deviation[];
  /** Passed to the scenario. */
  readonly configuration?: C;
  /** Options of random faults, or the exact faults of another run. Default: none. */
  readonly faults?: FaultOptions | readonly Fault[];
  /**
   * Messages among which the strategy chooses: the oldest of each sender (default; covers every order
   * that real transports can produce), or for each actor the oldest, control before data.
   */
  readonly offers?: Offers;
  /**
   * Virtual milliseconds that a message may wait although it could be handled: a strategy may let
   * timers that are due by then fire first. Default 1,000.
   */
  readonly raceMs?: number;
  /** Maximum number of steps; more are a livelock. Default 1,000,000. */
  readonly maxSteps?: number;
  /** Real milliseconds after which a handler counts as hanging. Default 5,000. */
  readonly hangMs?: number;
  /**
   * URLs, or parts of URLs, of modules that may use forbidden globals, also through functions that they
   * call: devices. A module that they load while an actor runs must be listed separately.
   */
  readonly trusted?: readonly string[];
  /** True if the running hash includes digests of messages. Default true. */
  readonly digests?: boolean;
  /** Receives each step; this makes the run several times slower. */
  readonly onStep?: (step: StepRecord) => void;
  /** Receives each message before it is handled, with its digest. */
  readonly onMessage?: (digest: string, message: unknown) => void;
  /** Facts for the strategy if the run is one of several; `begun` if `strategy.begin` was called.
   * Default: the run is the first. */
  readonly start?: Omit<RunStart, "seed"> | "begun";
}

/** Default of {@linkcode SimulateOptions.maxSteps}. */
export const MAX_STEPS = 1_000_000;

/** Default of {@linkcode SimulateOptions.raceMs}: a typical delay on real machines. */
export const RACE_MS = 1000;

/** Default of {@linkcode SimulateOptions.hangMs}. */
export const HANG_MS = 5000;

/**
 * The result of a run.
 *
 * @typeParam T result of the scenario.
 */
export interface Run<T = unknown> {
  /** See {@linkcode SimulateOptions.seed}. */
  readonly seed: number;
  /** Name of the strategy. */
  readonly strategy: string;
  /** Number of handled messages. */
  readonly steps: number;
  /** Number of choices by the strategy: steps outside `settle`, and waits. */
  readonly choices: number;
  /** Running hash over all steps, 16 hexadecimal digits. */
  readonly hash: string;
  /** Differences from FIFO order, which reproduce the run. */
  readonly deviations: readonly Deviation[];
  /** Faults that occurred. */
  readonly faults: readonly Fault[];
  /** The failure, if any. */
  readonly failure?: SimulationFailure;
  /** Descriptions of the actors that wait for a message forever at the end of the run, with the types
   * that they handle. */
  readonly waiting: readonly string[];
  /** Result of the scenario, if it ended. */
  readonly value?: T;
}

/** A function that spawns actors, sends messages, waits, and adds checks. */
export type Scenario<T = unknown, C = undefined> = (world: World<C>) => Promise<T> | T;
