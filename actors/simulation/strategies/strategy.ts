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
  | { readonly step: number; readonly late: number };

/** What a strategy knows of a run when that begins. */
export interface RunStart {
  /** The seed of the run. */
  readonly seed: number;
  /** Which run of the exploration it is, from 0. */
  readonly run: number;
  /** Choices that the run before took, or a guess. */
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
  /** A run begins. False: there is nothing left to explore. */
  begin(start: RunStart): boolean;
  /**
   * Picks the index of a candidate, or {@linkcode PRUNE} or {@linkcode WAIT}.
   *
   * @param candidates in canonical order: 0 is what happens without a strategy.
   * @param step counts the choices of this run.
   * @param state the digest of the whole state, made when asked for.
   */
  choose(candidates: readonly Candidate[], step: number, state: () => number): number;
  /** Where the order was not plain, if the strategy can say it in fewer words than one choice for
   * each step. */
  readonly deviations?: readonly Deviation[] | undefined;
  /** A run has ended: it failed, or nobody can do anything. */
  end?(state: () => number): void;
}

/** A choice that ends the run, as the rest of it is known. */
export const PRUNE = -1;

/** A choice to handle nothing before the next timer. */
export const WAIT = -2;

/** Guess of {@linkcode RunStart.expectedSteps} for a first run. */
export const FIRST_EXPECTED_STEPS = 256;
