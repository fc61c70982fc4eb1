/**
 * The learning rate of each step.
 *
 * @module
 */

/** How the learning rate changes over a run. */
export interface LearningRate {
  /** The highest rate. */
  readonly rate: number;
  /** After the warm-up: constant, or half a cosine down to zero at the end of the run. */
  readonly schedule: "constant" | "cosine";
  /** Steps in which the rate rises linearly from zero; the last of them has the full rate. */
  readonly warmup: number;
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
 * ```
 */
export function learningRateAt(
  { rate, schedule, warmup, steps }: LearningRate,
  step: number,
): number {
  if (step <= warmup) return rate * step / warmup;
  if (schedule === "constant") return rate;
  const progress = (step - warmup - 1) / Math.max(1, steps - warmup);
  return rate * 0.5 * (1 + Math.cos(Math.PI * progress));
}
