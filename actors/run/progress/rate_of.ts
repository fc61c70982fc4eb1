/**
 * The learning rate of each step, as the options of a run say it.
 *
 * @module
 */

import { learningRateAt } from "../../../kernels/mod.ts";
import { fromZero, required } from "../options/must.ts";
import type { TrainOptions } from "../options/train_options.ts";

/** The learning rate of a step, counted from 1. */
export type RateOf = (step: number) => number;

/** The learning rate, or the highest of a schedule, unless the options say another. */
const RATE = 1e-3;

/**
 * The learning rate of each step. A function of the user's is looked at whenever it is asked, for the
 * first step before anything runs.
 *
 * @throws {RangeError} when a schedule would rise, or the first rate is none.
 * @throws {TypeError} when the first rate is no number.
 */
export function rateOf({ learningRate = RATE, steps, resume }: TrainOptions): RateOf {
  if (typeof learningRate === "number") return () => learningRate;
  if (typeof learningRate === "object") {
    const { rate = RATE, schedule = "constant", warmup = 0, minRate = 0 } = learningRate;
    const most = schedule === "constant" ? 0 : rate;
    const all = { rate, schedule, warmup, minRate, steps };
    if (minRate <= most) return (step) => learningRateAt(all, step);
    throw new RangeError(
      `Cannot train: the learning rate at the end must be ${
        schedule === "constant" ? "left out where it is constant" : `at most the first, ${rate}`
      }, received ${minRate}`,
    );
  }
  const checked = (step: number) => {
    const rate = learningRate(step);
    required(fromZero)(`Cannot run step ${step}: the learning rate`, rate);
    return rate;
  };
  const first = (resume?.step ?? 0) + 1;
  if (first <= steps) checked(first);
  return checked;
}
