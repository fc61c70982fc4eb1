/**
 * Numbers that have left the floats: what a run says of them, and where it looks for them.
 *
 * @module
 */

import {
  type Batch,
  elementCount,
  type ModelProgram,
  type StageState,
  type TensorPart,
} from "../../kernels/mod.ts";
import type { Schedule } from "../../schedules/mod.ts";
import type { GradientSquares } from "./gradient_norm.ts";
import { type LossScale, type LossScaleState, SCALE_MIN, SKIPS_MAX } from "./loss_scale.ts";

/** A run that cannot go on: a loss, a gradient or a weight that is not finite. */
export class NonFiniteError extends Error {
  /** `NonFiniteError`. */
  override name = "NonFiniteError";
}

/** What helps a run whose numbers have left the floats. */
const REMEDY = "lower the learning rate, or resume from the last checkpoint";

/** The same, where the numbers have reached the weights before anybody could see them. */
const REMEDY_WHEN_LOST = "the weights are lost: resume from the last checkpoint";

/** A step that was not taken is an error, unless a loss scale may have been too high. */
export function assertScaled(
  { updates }: Schedule,
  lossScale: LossScale | undefined,
  { scale, skipped }: LossScaleState,
  step: number,
  loss: number,
): void {
  const isLowest = lossScale === "dynamic" && scale <= SCALE_MIN;
  if (lossScale !== undefined && skipped + 1 < SKIPS_MAX && !isLowest) return;
  const remedy = updates === "flush" ? REMEDY : REMEDY_WHEN_LOST;
  const before = isLowest
    ? ` with the lowest loss scale, ${scale}`
    : skipped === 0
    ? ""
    : ` after ${skipped} skipped steps`;
  throw new NonFiniteError(
    `Cannot take step ${step}${before}: loss and gradients must be finite, received loss ${loss}; ${remedy}`,
  );
}

/** NaN is always a mistake; infinities may be meant, as in a mask, and are looked for after it. */
const NON_FINITE = [Number.isNaN, (value: number) => Math.abs(value) === Infinity];

/**
 * Makes sure that it is not the data that keeps something from being done: no number of a field that
 * the model reads may be NaN or infinite.
 *
 * @param what what cannot be done, and what must be finite for it.
 * @param how whether a loss scale may be the cause of infinities, and whether the weights are lost.
 * @throws {NonFiniteError} naming the field, the micro-batch and the row, each counted from 0.
 */
export function assertFiniteData(
  { programs }: Pick<ModelProgram, "programs">,
  microBatches: readonly Batch[],
  what: string,
  loss: number,
  how: { readonly isScaled?: boolean; readonly isLost?: boolean } = {},
): void {
  for (const isWrong of NON_FINITE.slice(0, how.isScaled ? 1 : 2)) {
    for (const { name, shape, dtype } of programs.flatMap(({ fields }) => fields)) {
      for (const [i, batch] of dtype.startsWith("f") ? microBatches.entries() : []) {
        const values = batch[name] as Float32Array, at = values.findIndex(isWrong);
        if (at < 0) continue;
        const row = Math.floor(at / elementCount(shape.slice(1)));
        const where = `row ${row} of the field "${name}" of micro-batch ${i}`;
        const lost = how.isLost ? `; ${REMEDY_WHEN_LOST}` : "";
        const remedy = `correct or leave out such rows${
          isWrong(NaN) ? "" : `, or ${REMEDY}`
        }${lost}`;
        const found = `the data has ${values[at]} in ${where}: ${remedy}`;
        throw new NonFiniteError(`Cannot ${what} must be finite, received loss ${loss}; ${found}`);
      }
    }
  }
}

/** A run of which no step was taken: it has trained nothing, and would leave that as its result. */
export function allSkipped(
  steps: number,
  lossScale: LossScale | undefined,
  { scale }: LossScaleState,
): NonFiniteError {
  const remedy = lossScale === "dynamic"
    ? `let it run for more steps, or begin with a loss scale below ${scale}`
    : "use a lower loss scale, or a dynamic one";
  return new NonFiniteError(
    `Cannot end after ${steps} steps: some must have been taken, received an overflow in each under the loss scale ${lossScale}; ${remedy}`,
  );
}

/** Whether all losses, and the sums of squares of all updates, are finite. */
export function areFinite(
  losses: readonly Float32Array[],
  updates: readonly GradientSquares[],
): boolean {
  return losses.every((samples) => samples.every(Number.isFinite)) &&
    updates.every((squares) => squares.values().every(Number.isFinite));
}

/**
 * Makes sure that parts of weights and moments may be kept.
 *
 * @param values the parts, one after the other.
 * @throws {NonFiniteError} naming the first number that is not finite.
 */
export function assertFinite(
  parts: readonly TensorPart[],
  values: Float32Array,
  step: number,
): void {
  const wrong = indexOfNonFinite(values);
  if (wrong === values.length) return;
  let at = 0;
  const part = parts.find(({ from, to }) => (at += to - from) > wrong);
  throw new NonFiniteError(
    `Cannot keep step ${step}: weights and moments must be finite, received ${
      values[wrong]
    } in "${part?.name}"; ${REMEDY}`,
  );
}

/**
 * Refuses weights and moments that no run could have kept, all in one go.
 *
 * @throws {RangeError} naming the first number that is not finite.
 */
export function checkFinite({ weights, moments }: StageState, what: string): void {
  for (const [name, values] of [...weights, ...moments]) {
    const wrong = indexOfNonFinite(values);
    if (wrong === values.length) continue;
    throw new RangeError(
      `${what}: weights and moments must be finite, received ${values[wrong]} in "${name}"`,
    );
  }
}

/** Where the first number stands that is not finite; the length where all are. */
function indexOfNonFinite(values: Float32Array): number {
  let i = 0;
  while (i < values.length && Number.isFinite(values[i])) i++;
  return i;
}
