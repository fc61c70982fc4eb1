/**
 * Operations that reduce axes, and what is built on such sums.
 *
 * @module
 */

import { elementCount, positiveAxis } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import type { LayerGraph } from "../../layers/layer.ts";
import {
  type Call,
  checkMade,
  constantNumbers,
  floatOf,
  type ImportOp,
  intOf,
  mustBe,
  operand,
} from "./call.ts";

/** The axes of a reduction, and whether they stay with size 1. */
function reductionOf(call: Call) {
  const { shape } = operand(call, 0), given = constantNumbers(call, 1) ?? [];
  const isNone = given.length === 0 && intOf(call, "noop_with_empty_axes", 0) === 1;
  const all = given.length > 0 || isNone ? given : shape.map((_, axis) => axis);
  return {
    axes: all.map((axis) => positiveAxis(axis, shape.length)),
    isKept: intOf(call, "keepdims", 1) === 1,
  };
}

const reduction =
  (build: (g: LayerGraph, x: Value, axes: readonly number[], isKept: boolean) => Value): ImportOp =>
  (call) => {
    const { axes, isKept } = reductionOf(call);
    return build(call.g, operand(call, 0), axes, isKept);
  };

/** Over one axis; in opsets before 13 over all from one on. */
const softmaxOf = (build: (g: LayerGraph, x: Value, axis: number) => Value): ImportOp => (call) => {
  const x = operand(call, 0), { shape } = x;
  const axis = positiveAxis(intOf(call, "axis", -1), shape.length);
  if (intOf(call, "flattened", 0) === 0 || axis === shape.length - 1) return build(call.g, x, axis);
  const flat = [elementCount(shape.slice(0, axis)), elementCount(shape.slice(axis))];
  return call.g.reshape(build(call.g, call.g.reshape(x, flat), 1), shape);
};

const extreme = (of: (x: Value, g: LayerGraph) => Value): ImportOp => (call) => {
  mustBe(call, "select_last_index", 0, [0]);
  const isKept = intOf(call, "keepdims", 1) === 1;
  return call.g.argMax(of(operand(call, 0), call.g), intOf(call, "axis", 0), isKept);
};

const layerNorm: ImportOp = (call) => {
  const { g, inputs: [, , bias] } = call, x = operand(call, 0), weight = operand(call, 1);
  const axis = positiveAxis(intOf(call, "axis", -1), x.shape.length);
  const width = elementCount(x.shape.slice(axis)), epsilon = floatOf(call, "epsilon", 1e-5);
  mustBe(call, "stash_type", 1, [1]);
  checkMade("what is normalised", width);
  const flat = (value: Value) => g.reshape(value, [width]);
  const rows = g.reshape(x, [...x.shape.slice(0, axis), width]);
  const zeros = () => g.constant(new Float32Array(width), [width]);
  return g.reshape(
    g.layerNorm(rows, flat(weight), bias ? flat(bias) : zeros(), epsilon),
    x.shape,
  );
};

/** By ONNX's names. */
export const REDUCTION_OPS: Readonly<Record<string, ImportOp>> = {
  ReduceSum: reduction((g, x, axes, isKept) => g.sum(x, axes, isKept)),
  ReduceMean: reduction((g, x, axes, isKept) => g.mean(x, axes, isKept)),
  ReduceMax: reduction((g, x, axes, isKept) => g.max(x, axes, isKept)),
  ReduceMin: reduction((g, x, axes, isKept) => g.min(x, axes, isKept)),
  ReduceProd: reduction((g, x, axes, isKept) => g.product(x, axes, isKept)),
  ReduceSumSquare: reduction((g, x, axes, isKept) => g.sumOfSquares(x, axes, isKept)),
  ReduceL1: reduction((g, x, axes, isKept) => g.sumOfAbsolutes(x, axes, isKept)),
  ReduceL2: reduction((g, x, axes, isKept) => g.norm(x, axes, isKept)),
  ReduceLogSum: reduction((g, x, axes, isKept) => g.log(g.sum(x, axes, isKept))),
  ReduceLogSumExp: reduction((g, x, axes, isKept) => g.logSumExp(x, axes, isKept)),
  ArgMax: extreme((x) => x),
  ArgMin: extreme((x, g) => g.neg(x)),
  CumSum: (call) => {
    const [axis = 0] = constantNumbers(call, 1) ?? [],
      isSet = (name: string) => intOf(call, name, 0) === 1;
    const options = { exclusive: isSet("exclusive"), reverse: isSet("reverse") };
    return call.g.cumulativeSum(operand(call, 0), axis, options);
  },
  Softmax: softmaxOf((g, x, axis) => g.softmax(x, axis)),
  LogSoftmax: softmaxOf((g, x, axis) => g.logSoftmax(x, axis)),
  LayerNormalization: layerNorm,
};
