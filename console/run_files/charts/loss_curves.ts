/**
 * The losses of a run as curves of so few points as a picture shows, however long the run was.
 *
 * @module
 */

import { basename, resolve } from "node:path";
import { quoted } from "../../escape.ts";
import { readMetrics } from "../read_metrics.ts";
import type { RunFolder } from "../read_run.ts";

/** A point of a curve: the mean of the losses around a step. */
export interface LossPoint {
  readonly step: number;
  /** In nats a prediction. */
  readonly loss: number;
}

/** The curves of a run. */
export interface LossCurves {
  /** The name of its folder. */
  readonly name: string;
  /** Of the steps. */
  readonly training: readonly LossPoint[];
  /** Of the held-out data. */
  readonly heldOut: readonly LossPoint[];
}

/** Points of a curve, at most. */
const POINTS_MAX = 512;

/** Losses whose differences and sums are numbers, too. */
const isDrawable = (loss: number | undefined): loss is number => Math.abs(loss ?? NaN) < 1e100;

/**
 * Reads the curves of a run. Where there are more steps than points, each point is a mean.
 *
 * @throws {RangeError} when the run has measured no loss.
 */
export function readCurves({ path }: RunFolder): LossCurves {
  const training = openCurve(), heldOut = openCurve();
  for (const { metrics: { type, step, loss, evalLoss } } of readMetrics(path)) {
    if (type === "step" && isDrawable(loss)) training.add({ step, loss });
    if (isDrawable(evalLoss)) heldOut.add({ step, loss: evalLoss });
  }
  const curves = { training: training.points(), heldOut: heldOut.points() };
  if (curves.training.length + curves.heldOut.length === 0) {
    throw new RangeError(
      `Cannot draw the run ${quoted(path)}: its metrics.jsonl must have losses, received none`,
    );
  }
  return { name: basename(resolve(path)), ...curves };
}

/**
 * A curve that grows: when there are twice as many points as it may have, neighbours become one.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const curve = openCurve(2);
 * for (let step = 1; step <= 4; step++) curve.add({ step, loss: step });
 * assert.deepEqual(curve.points(), [{ step: 1.5, loss: 1.5 }, { step: 3.5, loss: 3.5 }]);
 * ```
 */
export function openCurve(pointsMax: number = POINTS_MAX) {
  let points: LossPoint[] = [], each = 1, sum = { step: 0, loss: 0 }, count = 0;
  const mean = () => ({ step: sum.step / count, loss: sum.loss / count });
  return {
    /** Adds the loss of a step. */
    add({ step, loss }: LossPoint): void {
      sum = { step: sum.step + step, loss: sum.loss + loss };
      if (++count < each) return;
      points.push(mean());
      [sum, count] = [{ step: 0, loss: 0 }, 0];
      if (points.length < 2 * pointsMax) return;
      points = points.filter((_, i) => i % 2 === 0).map((one, i) =>
        middle(one, points[2 * i + 1]!)
      );
      each *= 2;
    },
    /** The points so far. */
    points: (): LossPoint[] => count === 0 ? [...points] : [...points, mean()],
  };
}

const middle = (one: LossPoint, other: LossPoint): LossPoint => ({
  step: (one.step + other.step) / 2,
  loss: (one.loss + other.loss) / 2,
});
