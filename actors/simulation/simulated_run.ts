/**
 * A simulated run as data: what is asked of it, and what it was.
 *
 * @module
 */

import type { Offers } from "../runtime/mailbox/choose.ts";
import type { SimulationFailure } from "./failure.ts";
import type { Fault, FaultOptions } from "./faults/faults.ts";
import type { StepRecord } from "./journal/recorder.ts";
import type { Deviation, RunStart, Strategy } from "./strategies/strategy.ts";
import type { World } from "./world.ts";

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
