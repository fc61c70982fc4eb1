/**
 * Where a run stands, and where each step brings it.
 *
 * @module
 */

import {
  firstLossScale,
  type LossScale,
  type LossScaleState,
  nextLossScale,
} from "../../commit/loss_scale.ts";
import type { Best } from "./best.ts";
import type { TrainOptions } from "../options/train_options.ts";

/** Where a run stands, as a checkpoint keeps it. */
export interface Progress {
  /** Steps of the data that are done. */
  readonly step: number;
  /** Steps of the optimizer that were taken. */
  readonly update: number;
  /** Predictions learnt from; 0 is where one stood of whom no checkpoint says it. */
  readonly predictions: number;
  /** The loss scale of the next step. */
  readonly lossScale: LossScaleState;
  /** The best evaluation, where the run asks which it is. */
  readonly best?: Best | undefined;
}

/** Where a run begins: at step 0, or where the one stood that it goes on from. */
export function firstProgress(
  resume: TrainOptions["resume"],
  lossScale: LossScale = 1,
): Progress {
  const step = resume?.step ?? 0;
  const kept = resume?.config?.["progress"] as Partial<Progress> | undefined;
  const state = lossScale === "dynamic" ? kept?.lossScale : undefined;
  return {
    step,
    update: kept?.update ?? step,
    predictions: kept?.predictions ?? 0,
    lossScale: state ?? firstLossScale(lossScale),
    best: kept?.best,
  };
}

/**
 * Where a run stands after one more step, whether the optimizer took it or it was skipped.
 *
 * @param taken whether it was, and from how many predictions.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const first = firstProgress(undefined, "dynamic");
 * const skipped = nextProgress(first, { isTaken: false, predictions: 8 }, "dynamic");
 * assert.deepEqual([skipped.step, skipped.update, skipped.lossScale.scale], [1, 0, 32768]);
 * assert.equal(nextProgress(skipped, { isTaken: true, predictions: 8 }, "dynamic").update, 1);
 * ```
 */
export function nextProgress(
  { step, update, predictions, lossScale, best }: Progress,
  taken: { readonly isTaken: boolean; readonly predictions: number },
  scaling: LossScale = 1,
): Progress {
  return {
    step: step + 1,
    update: taken.isTaken ? update + 1 : update,
    predictions: taken.isTaken ? predictions + taken.predictions : predictions,
    lossScale: nextLossScale(scaling, lossScale, taken.isTaken),
    best,
  };
}

/** What a checkpoint says of progress: a loss scale that was given is an option of this run alone. */
export function keptProgress(
  { lossScale, ...progress }: Progress,
  scaling: LossScale | undefined,
): Partial<Progress> {
  return scaling === "dynamic" ? { ...progress, lossScale } : progress;
}
