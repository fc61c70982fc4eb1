/**
 * The learning rate of each step.
 *
 * @module
 */

/** How the learning rate may go on after the warm-up. */
export const LEARNING_RATE_SCHEDULES = ["constant", "linear", "cosine"] as const;

/** How the learning rate changes over a run. */
export interface LearningRate {
  /** The highest rate. */
  readonly rate: number;
  /** After the warm-up: constant, or down to `minRate` in a line or along half a cosine. */
  readonly schedule: (typeof LEARNING_RATE_SCHEDULES)[number];
  /** Steps in which the rate rises linearly from zero; the last of them has the full rate. */
  readonly warmup: number;
  /**
   * What linear and cosine fall to at the end of the run. As in PyTorch the first step after the
   * warm-up has the full rate, so the last is one step above this. Default 0.
   */
  readonly minRate?: number | undefined;
  /** Steps of the whole run. */
  readonly steps: number;
}

/**
 * The learning rate of step `step`, counted from 1.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { learningRateAt } from "@troupe/troupe/kernels";
 *
 * const cosine = { rate: 1, schedule: "cosine", warmup: 2, steps: 6 } as const;
 * assert.deepEqual([1, 2, 3].map((step) => learningRateAt(cosine, step)), [0.5, 1, 1]);
 * assert.ok(learningRateAt(cosine, 6) < 0.2);
 * const linear = { ...cosine, schedule: "linear", minRate: 0.5 } as const;
 * assert.deepEqual([3, 5].map((step) => learningRateAt(linear, step)), [1, 0.75]);
 * ```
 */
export function learningRateAt(
  { rate, schedule, warmup, minRate = 0, steps }: LearningRate,
  step: number,
): number {
  if (step <= warmup) return rate * step / warmup;
  if (schedule === "constant") return rate;
  const progress = (step - warmup - 1) / Math.max(1, steps - warmup);
  const left = schedule === "linear" ? 1 - progress : 0.5 * (1 + Math.cos(Math.PI * progress));
  return minRate + (rate - minRate) * left;
}
