/**
 * Operations that reduce axes, and those built on such sums: softmax, LayerNorm, cross-entropy.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import { fromFront, type NdArray, ndArray, type Operation, positions, stridesOf } from "./array.ts";

/** The groups of elements that a reduction over `axes` folds into one. */
interface Groups {
  /** The shape of the result, with reduced axes of size 1. */
  readonly shape: readonly number[];
  /** Elements in each group. */
  readonly size: number;
  /** The group of each element. */
  readonly of: Int32Array;
}

function groupsOf(shape: readonly number[], axes: readonly number[]): Groups {
  const kept = shape.map((size, axis) => axes.includes(axis) ? 1 : size);
  const strides = stridesOf(kept).map((stride, axis) => axes.includes(axis) ? 0 : stride);
  const size = elementCount(axes.map((axis) => shape[axis]!));
  return { shape: kept, size, of: positions(shape, strides) };
}

/** Folds the elements of each group from `initial`, in f64. */
function fold(
  groups: Groups,
  numbers: ArrayLike<number>,
  initial: number,
  combine: (folded: number, x: number) => number,
): Float64Array {
  const result = new Float64Array(elementCount(groups.shape)).fill(initial);
  groups.of.forEach((group, i) => result[group] = combine(result[group]!, numbers[i]!));
  return result;
}

const sum = (groups: Groups, numbers: ArrayLike<number>) =>
  fold(groups, numbers, 0, (total, x) => total + x);

function reduction(
  compute: (groups: Groups, numbers: ArrayLike<number>) => Float64Array,
): Operation {
  return ([x, given], attributes) => {
    const rank = x!.shape.length;
    const all = attributes.number("noop_with_empty_axes", 0) === 1 ? [] : x!.shape.keys();
    const axes = [...given?.values.length ? given.values : all].map((axis) =>
      fromFront(axis, rank)
    );
    const groups = groupsOf(x!.shape, axes);
    const keep = attributes.number("keepdims", 1) === 1;
    const shape = keep ? groups.shape : x!.shape.filter((_, axis) => !axes.includes(axis));
    return ndArray(x!.dtype, shape, compute(groups, x!.values));
  };
}

/** Where the first of the largest along an axis is. */
const argMax: Operation = ([x], attributes) => {
  const axis = fromFront(attributes.number("axis", 0), x!.shape.length);
  const groups = groupsOf(x!.shape, [axis]), largest = fold(groups, x!.values, -Infinity, Math.max);
  const stride = stridesOf(x!.shape)[axis]!, places = new Float64Array(largest.length).fill(-1);
  groups.of.forEach((group, i) => {
    if (places[group]! >= 0 || x!.values[i] !== largest[group]) return;
    places[group] = Math.floor(i / stride) % x!.shape[axis]!;
  });
  const keep = attributes.number("keepdims", 1) === 1;
  return ndArray("i64", keep ? groups.shape : x!.shape.toSpliced(axis, 1), places);
};

const cumulativeSum: Operation = ([x, axis], attributes) => {
  const at = fromFront(axis!.values[0]!, x!.shape.length), size = x!.shape[at]!;
  const isReverse = attributes.number("reverse", 0) === 1;
  const isExclusive = attributes.number("exclusive", 0) === 1;
  const stride = stridesOf(x!.shape)[at]! * (isReverse ? -1 : 1);
  const sums = new Float64Array(x!.values);
  for (let place = 0; place < sums.length; place++) {
    const i = isReverse ? sums.length - 1 - place : place;
    const isFirst = Math.floor(place / Math.abs(stride)) % size === 0;
    if (!isFirst) sums[i]! += sums[i - stride]!;
  }
  const own = isExclusive ? sums.map((sum, i) => sum - x!.values[i]!) : sums;
  return ndArray(x!.dtype, x!.shape, own);
};

/** ln Σ e^x of each group, in f64. */
function logSumExp(groups: Groups, numbers: ArrayLike<number>): Float64Array {
  const largest = fold(groups, numbers, -Infinity, Math.max);
  const shifted = Float64Array.from(numbers, (v, i) => Math.exp(v - largest[groups.of[i]!]!));
  return sum(groups, shifted).map((total, group) => Math.log(total) + largest[group]!);
}

const sumOfSquares = (groups: Groups, numbers: ArrayLike<number>) =>
  fold(groups, numbers, 0, (total, v) => total + v * v);

/** ln softmax over `axis`, in f64. */
function logSoftmax(x: NdArray, axis: number): Float64Array {
  const groups = groupsOf(x.shape, [fromFront(axis, x.shape.length)]);
  const largest = fold(groups, x.values, -Infinity, Math.max);
  const shifted = new Float64Array(x.values).map((v, i) => v - largest[groups.of[i]!]!);
  const total = sum(groups, shifted.map(Math.exp));
  return shifted.map((v, i) => v - Math.log(total[groups.of[i]!]!));
}

const layerNormalization: Operation = ([x, scale, bias], attributes) => {
  const rank = x!.shape.length;
  const first = fromFront(attributes.number("axis", -1), rank);
  const axes = [...x!.shape.keys()].slice(first);
  const groups = groupsOf(x!.shape, axes);
  const epsilon = attributes.number("epsilon", 1e-5);
  const mean = sum(groups, x!.values).map((total) => total / groups.size);
  const centred = new Float64Array(x!.values).map((v, i) => v - mean[groups.of[i]!]!);
  const inverse = sum(groups, centred.map((v) => v * v))
    .map((total) => 1 / Math.sqrt(total / groups.size + epsilon));
  const y = centred.map((v, i) => {
    const at = i % groups.size; // Reduced axes are the last ones.
    return v * inverse[groups.of[i]!]! * scale!.values[at]! + (bias?.values[at] ?? 0);
  });
  return [
    ndArray(x!.dtype, x!.shape, y),
    ndArray("f32", groups.shape, mean),
    ndArray("f32", groups.shape, inverse),
  ];
};

/** RMSNorm over the last axis. */
const rmsNormalization: Operation = ([x, scale], attributes) => {
  const groups = groupsOf(x!.shape, [x!.shape.length - 1]);
  const epsilon = attributes.number("epsilon", 1e-5);
  const inverse = sumOfSquares(groups, x!.values)
    .map((total) => 1 / Math.sqrt(total / groups.size + epsilon));
  const y = new Float64Array(x!.values).map((v, i) =>
    v * inverse[groups.of[i]!]! * scale!.values[i % groups.size]!
  );
  return ndArray(x!.dtype, x!.shape, y);
};

/** Scores [n, classes, ...rest], labels [n, ...rest]. */
const softmaxCrossEntropyLoss: Operation = ([scores, labels, weights], attributes) => {
  if (weights) {
    throw new TypeError("Cannot compute SoftmaxCrossEntropyLoss: it must have no weights");
  }
  const ignored = attributes.number("ignore_index", NaN);
  const logProbabilities = logSoftmax(scores!, 1);
  const strides = stridesOf(scores!.shape);
  const places = positions(labels!.shape, [strides[0]!, ...strides.slice(2)]);
  const losses = new Float64Array(places).map((place, i) => {
    const label = labels!.values[i]!;
    if (label === ignored) return 0;
    return -logProbabilities[place + checkClass(label, scores!.shape[1]!) * strides[1]!]!;
  });
  const total = losses.reduce((sum, loss) => sum + loss, 0);
  const counted = labels!.values.filter((label) => label !== ignored).length;
  const how = attributes.string("reduction", "mean");
  const loss = how === "none"
    ? ndArray(scores!.dtype, labels!.shape, losses)
    : ndArray(scores!.dtype, [], [how === "sum" ? total : total / counted]);
  return [loss, ndArray(scores!.dtype, scores!.shape, logProbabilities)];
};

function checkClass(label: number, classes: number): number {
  if (label >= 0 && label < classes) return label;
  throw new RangeError(
    `Cannot compute SoftmaxCrossEntropyLoss: a label must be in 0 .. ${
      classes - 1
    }, received ${label}`,
  );
}

/** Reductions, and what is built on them, by name. */
export const REDUCTIONS: Readonly<Record<string, Operation>> = {
  ReduceSum: reduction(sum),
  ReduceMean: reduction((groups, x) => sum(groups, x).map((total) => total / groups.size)),
  ReduceMax: reduction((groups, x) => fold(groups, x, -Infinity, Math.max)),
  ReduceMin: reduction((groups, x) => fold(groups, x, Infinity, Math.min)),
  ReduceSumSquare: reduction(sumOfSquares),
  ReduceL2: reduction((groups, x) => sumOfSquares(groups, x).map(Math.sqrt)),
  ReduceLogSumExp: reduction(logSumExp),
  ArgMax: argMax,
  CumSum: cumulativeSum,
  Softmax: ([x], attributes) =>
    ndArray(x!.dtype, x!.shape, logSoftmax(x!, attributes.number("axis", -1)).map(Math.exp)),
  LogSoftmax: ([x], attributes) =>
    ndArray(x!.dtype, x!.shape, logSoftmax(x!, attributes.number("axis", -1))),
  LayerNormalization: layerNormalization,
  SimplifiedLayerNormalization: rmsNormalization,
  SoftmaxCrossEntropyLoss: softmaxCrossEntropyLoss,
};
