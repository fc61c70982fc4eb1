/**
 * How far a prediction is from what was measured, and whether that is near enough.
 *
 * @module
 */

import { median } from "../profile/median.ts";
import type { StepParts } from "./step_parts.ts";

/** A step that was predicted and measured. Times are in milliseconds. */
export interface CheckedStep {
  /** What was run, in words. */
  readonly configuration: string;
  /** The median of the repeats. */
  readonly measured: number;
  /** How far the repeat that is farthest from it is away. */
  readonly spread: number;
  /** The prediction. */
  readonly predicted: number;
  /** How far that is from what was measured, as a fraction of it; never below 0. */
  readonly error: number;
  /** Where the time went. */
  readonly parts: { readonly measured: StepParts; readonly predicted: StepParts };
  /** What makes the prediction less certain. */
  readonly notes: readonly string[];
}

/** Compares a prediction with the repeats of a step. */
export function checkStep(
  repeats: readonly number[],
  predicted: number,
  about: Pick<CheckedStep, "configuration" | "parts" | "notes">,
): CheckedStep {
  const measured = median(repeats);
  const spread = Math.max(...repeats.map((ms) => Math.abs(ms - measured)));
  return {
    ...about,
    measured,
    spread,
    predicted,
    error: Math.abs(predicted - measured) / measured,
  };
}

/** The most that the median of all errors, and any of them, may be. */
const MEDIAN_ERROR_MAX = 0.05, ERROR_MAX = 0.1;

/** Whether one prediction is near enough: within 10 %, or the measured spread where that is larger. */
export const isNear = ({ error, spread, measured }: CheckedStep): boolean =>
  error <= Math.max(ERROR_MAX, spread / measured);

/** What the check comes to. */
export interface CheckResult {
  readonly medianError: number;
  readonly worstError: number;
  /** Those that are not near enough. */
  readonly missed: readonly CheckedStep[];
  /** Whether all bounds hold. */
  readonly isPassed: boolean;
}

/** Sums up a check. @throws {RangeError} when there is no step. */
export function checkResult(steps: readonly CheckedStep[]): CheckResult {
  if (steps.length === 0) throw new RangeError("Cannot check predictions: there must be a step");
  const medianError = median(steps.map(({ error }) => error));
  const missed = steps.filter((one) => !isNear(one));
  return {
    medianError,
    worstError: Math.max(...steps.map(({ error }) => error)),
    missed,
    isPassed: medianError <= MEDIAN_ERROR_MAX && missed.length === 0,
  };
}
