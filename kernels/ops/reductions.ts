/**
 * Reductions over axes, and sums along an axis.
 *
 * @module
 */

import { elementCount, type Ints, positiveAxis, reducedShape } from "../graph/shapes.ts";
import { type Node, numberOf, type Settings, type Value } from "../graph/value.ts";
import { type NdArray, ndArray, positions, stridesOf } from "./array.ts";
import type { Builder, Reduction } from "./builder.ts";
import {
  axisOf,
  constantNumbers,
  flat,
  type GradientRule,
  isSet,
  like,
  type Methods,
  mustBe,
  one,
  type Op,
  operand,
  type Ops,
  type Read,
  shaped,
  slope,
} from "./op.ts";

/**
 * Returns the groups of axes, which are counted from the front: the shape of the result, with reduced
 * axes of size 1, the number of elements in each group, and the group of each element.
 */
export function groupsOf(shape: Ints, axes: Ints) {
  const kept = reducedShape(shape, axes, true);
  const strides = stridesOf(kept).map((stride, axis) => axes.includes(axis) ? 0 : stride);
  const size = elementCount(axes.map((axis) => shape[axis]!));
  return { shape: kept, size, of: positions(shape, strides) };
}

/** The groups of elements of a reduction. */
export type Groups = ReturnType<typeof groupsOf>;

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

/** Returns the sum of each group. */
export const sum = (groups: Groups, numbers: ArrayLike<number>): Float64Array =>
  fold(groups, numbers, 0, (total, x) => total + x);

/** Returns the largest number of each group. */
export const largest = (groups: Groups, numbers: ArrayLike<number>): Float64Array =>
  fold(groups, numbers, -Infinity, Math.max);

/** Returns the sum of squares of each group. */
export const sumOfSquares = (groups: Groups, numbers: ArrayLike<number>): Float64Array =>
  fold(groups, numbers, 0, (total, v) => total + v * v);

/** Returns ln Σ e^x of each group, in f64. */
function logSumExp(groups: Groups, numbers: ArrayLike<number>): Float64Array {
  const most = largest(groups, numbers).map((most) => isFinite(most) ? most : 0);
  const shifted = Float64Array.from(numbers, (v, i) => Math.exp(v - most[groups.of[i]!]!));
  return sum(groups, shifted).map((total, group) => Math.log(total) + most[group]!);
}

const axesOf = (node: Node) => [...node.inputs[1]!.data as BigInt64Array].map(Number);

/** Restores the reduced axes of a result or its gradient, with size 1. */
const kept = (g: Builder, y: Value, node: Node): Value =>
  g.reshape(y, reducedShape(node.inputs[0]!.shape, axesOf(node), true));

/** Spreads the gradient of a reduction over the reduced axes. */
const spread = (g: Builder, dy: Value, node: Node) =>
  g.expand(kept(g, dy, node), node.inputs[0]!.shape);

/** Divides dy equally among the elements that are equal to the result. */
const extremum = slope((g, dy, x, y, node) => {
  const isResult = g.cast(g.equal(x, kept(g, y, node)), "f32");
  const share = g.div(kept(g, dy, node), g.sum(isResult, axesOf(node), true));
  return g.mul(isResult, share);
});

/** Returns the axes of a reduction: all of them if none are given. */
function axesGiven(shape: Ints, node: Settings, given: Ints = []): Ints {
  const isAll = given.length === 0 && !isSet(node, "noop_with_empty_axes");
  return (isAll ? [...shape.keys()] : given).map((axis) => positiveAxis(axis, shape.length));
}

/** Reads the axes of a reduction. */
const readAs = (build: (g: Builder, ...given: Parameters<Reduction>) => Value): Read => (call) => {
  const x = operand(call, 0), axes = axesGiven(x.shape, call, constantNumbers(call, 1));
  return build(call.g, x, axes, numberOf(call, "keepdims", 1) === 1);
};

const reduction = (
  method: "sum" | "mean" | "max" | "min" | "sumOfSquares" | "norm" | "logSumExp",
  compute: (groups: Groups, numbers: ArrayLike<number>) => Float64Array,
  gradient: GradientRule,
): Op => ({
  shape: (known) => {
    const { shape } = known.inputs[0], axes = axesGiven(shape, known, known.numbers(1));
    return shaped(known, reducedShape(shape, axes, numberOf(known, "keepdims", 1) === 1));
  },
  gradient,
  reference: ([x, given], node, [y]) => {
    const axes = axesGiven(x.shape, node, given && [...given.values]);
    return ndArray(y, compute(groupsOf(x.shape, axes), x.values));
  },
  read: readAs((g, ...given) => g[method](...given)),
});

/** Returns the index of the first largest element along an axis. */
function argMax(x: NdArray, axis: number): Float64Array {
  const groups = groupsOf(x.shape, [axis]), most = largest(groups, x.values);
  const stride = stridesOf(x.shape)[axis]!, places = new Float64Array(most.length).fill(-1);
  groups.of.forEach((group, i) => {
    if (places[group]! >= 0 || x.values[i] !== most[group]) return;
    places[group] = Math.floor(i / stride) % x.shape[axis]!;
  });
  return places;
}

const readExtreme = (of: (g: Builder, x: Value) => Value): Read => (call) => {
  mustBe(call, "select_last_index", 0, [0]);
  const isKept = numberOf(call, "keepdims", 1) === 1;
  return call.g.argMax(of(call.g, operand(call, 0)), numberOf(call, "axis", 0), isKept);
};

/** Reductions. */
export const REDUCTIONS: Ops = {
  ReduceSum: reduction("sum", sum, slope((g, dy, _x, _y, node) => spread(g, dy, node))),
  ReduceMean: reduction(
    "mean",
    (groups, x) => sum(groups, x).map((total) => total / groups.size),
    slope((g, dy, x, y, node) =>
      spread(g, g.mul(dy, g.scalar(elementCount(y.shape) / (elementCount(x.shape) || 1))), node)
    ),
  ),
  ReduceMax: reduction("max", largest, extremum),
  ReduceMin: reduction("min", (groups, x) => fold(groups, x, Infinity, Math.min), extremum),
  ReduceSumSquare: reduction(
    "sumOfSquares",
    sumOfSquares,
    slope((g, dy, x, _, node) => g.mul(spread(g, dy, node), g.mul(x, g.scalar(2)))),
  ),
  ReduceL2: reduction(
    "norm",
    (groups, x) => sumOfSquares(groups, x).map(Math.sqrt),
    // y' = x/y, and 0 where y is 0.
    slope((g, dy, x, y, node) => {
      const zero = g.scalar(0);
      return g.mul(x, kept(g, g.where(g.equal(y, zero), zero, g.div(dy, y)), node));
    }),
  ),
  ReduceLogSumExp: reduction(
    "logSumExp",
    logSumExp,
    slope((g, dy, x, y, node) => g.mul(kept(g, dy, node), g.exp(g.sub(x, kept(g, y, node))))),
  ),
  ReduceProd: { read: readAs((g, ...given) => g.prod(...given)) },
  ReduceL1: { read: readAs((g, ...given) => g.sumOfAbsolutes(...given)) },
  ReduceLogSum: { read: readAs((g, ...given) => g.log(g.sum(...given))) },
  ArgMax: {
    shape: (known) => {
      const [{ shape }] = known.inputs, isKept = numberOf(known, "keepdims", 1) === 1;
      return shaped(known, reducedShape(shape, [axisOf(known, shape)], isKept), "i64");
    },
    gradient: flat,
    reference: ([x], node, [y]) => ndArray(y, argMax(x, axisOf(node, x.shape))),
    read: readExtreme((_, x) => x),
  },
  ArgMin: { gradient: flat, read: readExtreme((g, x) => g.neg(x)) },
  CumSum: {
    shape: like(0),
    gradient: slope((g, dy, _x, _y, node) =>
      one(g, REDUCTIONS, "CumSum", [dy, node.inputs[1]!], {
        ...node.attributes,
        reverse: isSet(node, "reverse") ? 0 : 1,
      })
    ),
    reference: ([x, axis], node) => {
      const at = positiveAxis(axis!.values[0]!, x.shape.length), size = x.shape[at]!;
      const isReverse = isSet(node, "reverse");
      const stride = stridesOf(x.shape)[at]! * (isReverse ? -1 : 1);
      const sums = new Float64Array(x.values);
      for (let place = 0; place < sums.length; place++) {
        const i = isReverse ? sums.length - 1 - place : place;
        const isFirst = Math.floor(place / Math.abs(stride)) % size === 0;
        if (!isFirst) sums[i]! += sums[i - stride]!;
      }
      const own = isSet(node, "exclusive") ? sums.map((sum, i) => sum - x.values[i]!) : sums;
      return ndArray(x, own);
    },
    read: (call) => {
      const [axis = 0] = constantNumbers(call, 1) ?? [];
      const options = { exclusive: isSet(call, "exclusive"), reverse: isSet(call, "reverse") };
      return call.g.cumsum(operand(call, 0), axis, options);
    },
  },
};

/** Returns the method of a reduction; over no axes it is `otherwise`, because in ONNX these are all. */
function reduced(op: string, otherwise: (g: Builder, a: Value) => Value = (_, a) => a) {
  return (g: Builder, a: Value, axes: Ints = [...a.shape.keys()], keep = false): Value => {
    if (axes.length === 0) return otherwise(g, a);
    const at = axes.map((axis) => positiveAxis(axis, a.shape.length));
    return one(g, REDUCTIONS, op, [a, g.int64(at)], { keepdims: +keep });
  };
}

/** Multiplies the halves of an axis recursively: elements of 0 have a gradient, too. */
function productAlong(g: Builder, a: Value, axis: number): Value {
  const size = a.shape[axis]!, half = Math.floor(size / 2);
  if (size === 0) return g.expand(g.scalar(1, a.dtype), a.shape.with(axis, 1));
  if (size === 1) return a;
  const [left, right, rest] = g.split(a, axis, size % 2 ? [half, half, 1] : [half, half]);
  const both = productAlong(g, g.mul(left!, right!), axis);
  return rest ? g.mul(both, rest) : both;
}

/** Methods that add reductions. */
export const REDUCTION_METHODS: Methods = {
  sum: reduced("ReduceSum"),
  mean: reduced("ReduceMean"),
  sumOfSquares: reduced("ReduceSumSquare", (g, a) => g.mul(a, a)),
  max: reduced("ReduceMax"),
  min: reduced("ReduceMin"),
  sumOfAbsolutes: (g, a, axes, keep) => g.sum(g.abs(a), axes, keep),
  norm: reduced("ReduceL2", (g, a) => g.abs(a)),
  logSumExp: reduced("ReduceLogSumExp"),
  prod: (g, a, axes = a.shape.map((_, i) => i), keep = false) => {
    const at = axes.map((axis) => positiveAxis(axis, a.shape.length));
    const whole = at.reduce((result, axis) => productAlong(g, result, axis), a);
    return g.reshape(whole, reducedShape(a.shape, at, keep));
  },
  argMax: (g, a, axis, keep = true) =>
    one(g, REDUCTIONS, "ArgMax", [a], {
      axis: positiveAxis(axis, a.shape.length),
      keepdims: +keep,
    }),
  cumsum: (g, a, axis, { exclusive = false, reverse = false } = {}) => {
    const at = BigInt64Array.of(BigInt(positiveAxis(axis, a.shape.length)));
    return one(g, REDUCTIONS, "CumSum", [a, g.constant(at, [], "i64")], {
      exclusive: +exclusive,
      reverse: +reverse,
    });
  },
};
