/**
 * Losses of samples, as the last layer of a model returns them.
 *
 * @module
 */

import { elementCount, sameShape } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import type { LayerGraph } from "../layer.ts";

/** Options of {@linkcode crossEntropy}. */
export interface CrossEntropyOptions {
  /**
   * Share of each target that is spread evenly over all classes, from 0 to 1; 0 unless given. As
   * `label_smoothing` of PyTorch (Szegedy et al. 2016).
   */
  readonly smoothing?: number;
}

/**
 * Softmax cross-entropy, summed over what each sample predicts: logits [samples, ..., classes] and
 * targets int32 [samples, ...] give [samples]. A target of −1 has no loss and no gradient: with
 * `predictions: (batch) => countTargets(batch, field)` the mean is over the others.
 *
 * @throws {RangeError} when the shapes do not match, or smoothing is not from 0 to 1.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { crossEntropy, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), logits = g.input("x", [2, 5, 10]);
 * const targets = g.batch("targets", [2, 5], "i32");
 * assert.deepEqual(crossEntropy(g, logits, targets, { smoothing: 0.1 }).shape, [2]);
 * assert.throws(() => crossEntropy(g, logits, targets, { smoothing: 2 }), /from 0 to 1, received 2/);
 * ```
 */
export function crossEntropy(
  g: LayerGraph,
  logits: Value,
  targets: Value,
  { smoothing = 0 }: CrossEntropyOptions = {},
): Value {
  if (!(smoothing >= 0 && smoothing <= 1)) {
    throw new RangeError(
      `Cannot take cross-entropy: smoothing must be from 0 to 1, received ${smoothing}`,
    );
  }
  if (logits.shape.length < 2 || !sameShape(logits.shape.slice(0, -1), targets.shape)) {
    throw new RangeError(
      `Cannot take cross-entropy: logits must be [samples, ..., classes] and targets [samples, ...], received [${logits.shape}] and [${targets.shape}]`,
    );
  }
  const rows = elementCount(targets.shape), classes = logits.shape.at(-1)!;
  const flat = g.reshape(logits, [rows, classes]), wanted = g.reshape(targets, [rows]);
  const hard = g.crossEntropy(flat, wanted);
  const losses = smoothing === 0
    ? hard
    : g.add(hard, g.mul(excess(g, flat, wanted), g.scalar(smoothing)));
  return samplesSum(g, losses, targets.shape);
}

/**
 * The squared differences, as their mean over the numbers of each sample: two of [samples, ...] give
 * [samples]. With `predictions` the number of samples, a step's loss is PyTorch's `mse_loss`.
 *
 * @throws {RangeError} when the shapes differ or have no axis.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { LayerGraph, meanSquaredError } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), wanted = g.batch("wanted", [4, 3]);
 * assert.deepEqual(meanSquaredError(g, g.input("x", [4, 3]), wanted).shape, [4]);
 * assert.throws(() => meanSquaredError(g, g.input("y", [4]), wanted), /received \[4\] and \[4,3\]/);
 * ```
 */
export function meanSquaredError(g: LayerGraph, prediction: Value, target: Value): Value {
  const { shape } = prediction;
  if (shape.length === 0 || !sameShape(shape, target.shape)) {
    throw new RangeError(
      `Cannot take the mean squared error: both must be of one shape, [samples, ...], received [${shape}] and [${target.shape}]`,
    );
  }
  const difference = g.sub(prediction, target);
  const size = elementCount(shape) / shape[0]!;
  return g.mul(samplesSum(g, g.mul(difference, difference), shape), g.scalar(1 / size));
}

/** By how much the logit of each target exceeds the mean of its row; 0 where the target is −1. */
function excess(g: LayerGraph, logits: Value, targets: Value): Value {
  const [rows, classes] = logits.shape as [number, number];
  const int = (value: number) => g.constant(Int32Array.of(value), [], "i32");
  const isPredicted = g.greater(targets, int(-1));
  const evenly = g.expand(g.scalar(-1 / classes), [rows, classes]);
  const column = g.where(isPredicted, targets, int(0));
  const weights = g.scatterAddColumns(evenly, column, g.expand(g.scalar(1), [rows, 1]));
  const excess = g.sum(g.mul(logits, weights), [1]);
  return g.where(isPredicted, excess, g.scalar(0));
}

/** What the numbers of each sample add up to. */
const samplesSum = (g: LayerGraph, values: Value, shape: readonly number[]): Value =>
  g.sum(g.reshape(values, [shape[0]!, elementCount(shape) / shape[0]!]), [1]);
