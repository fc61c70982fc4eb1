/**
 * The one small interface behind which all ways to explore stand: who answers `choose`?
 *
 * @module
 */

import type { Candidate } from "../../runtime/mod.ts";

/** A step at which the order was not plain. */
export type Deviation =
  /** The candidate of this index, 1 or more, was chosen. */
  | { readonly step: number; readonly choice: number }
  /** The candidate of this index was put behind all others, and stays there. */
  | { readonly step: number; readonly late: number }
  /** So many timers, 1 or more, fired before, though something could be handled. */
  | { readonly step: number; readonly wait: number };

/** The timer that fires next: there is none, or it may fire before what can be handled now
 * (`near`), or that would take longer than a message may wait (`far`). */
export type NextTimer = "none" | "near" | "far";

/** What a strategy knows of a run when that begins. */
export interface RunStart {
  /** The seed of the run. */
  readonly seed: number;
  /** Which run of the exploration it is, from 0. */
  readonly run: number;
  /** Choices that the run before took, settled steps not counted, or a guess. */
  readonly expectedSteps: number;
}

/**
 * Decides the order of a run, one step at a time.
 *
 * @example The newest message first
 * ```ts
 * import type { Strategy } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const newest: Strategy = {
 *   name: "newest",
 *   begin: () => true,
 *   choose: (candidates) => candidates.length - 1,
 * };
 * assert.ok(newest.begin({ seed: 0, run: 0, expectedSteps: 100 }));
 * ```
 */
export interface Strategy {
  /** As it stands in reports and journals. */
  readonly name: string;
  /** Goes through all runs there are, so that each must be of one seed and without faults. */
  readonly isExhaustive?: true;
  /** A run begins. False: there is nothing left to explore. */
  begin(start: RunStart): boolean;
  /**
   * Picks the index of a candidate, or {@linkcode PRUNE} or {@linkcode WAIT}.
   *
   * @param candidates in canonical order: 0 is what happens without a strategy.
   * @param step counts the steps of this run, those included that nobody chose. After a
   * {@linkcode WAIT} it is the same again.
   * @param state the digest of the whole state, made when asked for.
   * @param timer whether a {@linkcode WAIT} is a fair choice: it should be made only when `near`.
   * Default `none`.
   */
  choose(
    candidates: readonly Candidate[],
    step: number,
    state: () => number,
    timer?: NextTimer,
  ): number;
  /** Where the order was not plain, if the strategy can say it in fewer words than one choice for
   * each step. */
  readonly deviations?: readonly Deviation[] | undefined;
  /** What the actor at work reads from the clock, where that is known from a run before. */
  reads?(): number | undefined;
  /** A run has ended: it failed, or nobody can do anything. */
  end?(state: () => number): void;
}

/** A choice that ends the run, as the rest of it is known. */
export const PRUNE: number = -1;

/** A choice to handle nothing before the next timer. Where there is no timer, nothing happens any
 * more. */
export const WAIT: number = -2;

/** Guess of {@linkcode RunStart.expectedSteps} for a first run. */
export const FIRST_EXPECTED_STEPS = 256;

/** Checks the number that a strategy is made with. @throws {RangeError} */
export function checkPositive(strategy: string, name: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 1) return;
  throw new RangeError(
    `Cannot explore by ${strategy}: ${name} must be a positive integer, received ${value}`,
  );
}

/** Notes that one more timer fires before a step. */
export function addWait(deviations: Deviation[], step: number): void {
  const last = deviations.at(-1), isSame = last && "wait" in last && last.step === step;
  if (isSame) deviations.pop();
  deviations.push({ step, wait: isSame ? last.wait + 1 : 1 });
}
