/**
 * Loss scaling for mixed precision: gradients are multiplied by a factor so that small ones do not
 * vanish in FP16, and divided by it before the optimizer (Micikevicius et al. 2018, section 3.2).
 *
 * @module
 */

/** A factor, or one that is found while training. */
export type LossScale = number | "dynamic";

/** Where a dynamic scale stands, as a checkpoint keeps it. */
export interface LossScaleState {
  /** The factor of the next step. */
  readonly scale: number;
  /** Steps taken in a row since it last changed. */
  readonly goodSteps: number;
  /** Steps in a row that were not taken. */
  readonly skipped: number;
}

/** As in PyTorch's GradScaler: the scale doubles after so many good steps. */
const GROWTH_INTERVAL = 2000;
const FIRST_DYNAMIC_SCALE = 65_536;

/** The lowest dynamic scale: below the smallest normal FP16 number, gradients near 1 vanish too. */
export const SCALE_MIN = 2 ** -14;

/** The highest scale: even the smallest gradient that FP16 knows, 2^-24, overflows under it. */
export const SCALE_MAX = 2 ** 40;

/** Steps in a row that may be skipped: gradients that overflow at any scale are no accident. */
export const SKIPS_MAX = 20;

/** Where a run begins. */
export function firstLossScale(lossScale: LossScale): LossScaleState {
  const scale = lossScale === "dynamic" ? FIRST_DYNAMIC_SCALE : lossScale;
  return { scale, goodSteps: 0, skipped: 0 };
}

/**
 * The state after a step: an overflow halves a dynamic scale, and a long row of steps without one
 * doubles it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const start = firstLossScale("dynamic");
 * assert.equal(start.scale, 65536);
 * assert.deepEqual(nextLossScale("dynamic", start, false), { scale: 32768, goodSteps: 0, skipped: 1 });
 * assert.deepEqual(nextLossScale(128, firstLossScale(128), false), {
 *   scale: 128,
 *   goodSteps: 0,
 *   skipped: 1,
 * });
 * ```
 */
export function nextLossScale(
  lossScale: LossScale,
  { scale, goodSteps, skipped }: LossScaleState,
  isTaken: boolean,
): LossScaleState {
  const isDynamic = lossScale === "dynamic";
  if (!isTaken) {
    return { scale: isDynamic ? scale / 2 : scale, goodSteps: 0, skipped: skipped + 1 };
  }
  const grows = isDynamic && goodSteps + 1 === GROWTH_INTERVAL;
  return {
    scale: grows ? Math.min(2 * scale, SCALE_MAX) : scale,
    goodSteps: grows ? 0 : goodSteps + 1,
    skipped: 0,
  };
}
