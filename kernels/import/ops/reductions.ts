/**
 * Operations that reduce axes, and what is built on such sums.
 *
 * @module
 */

import { elementCount, positiveAxis, reducedShape } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import {
  type Call,
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

/** The same operation. */
const reduction: ImportOp = (call) => {
  const x = operand(call, 0), { axes, isKept } = reductionOf(call);
  if (axes.length === 0) return x;
  return call.g.node(call.node.op, [x, call.g.int64(axes)], [reducedShape(x.shape, axes, isKept)], {
    keepdims: +isKept,
  });
};

/** A reduction of something else. */
const reductionAs =
  (build: (call: Call, x: Value, axes: readonly number[], isKept: boolean) => Value): ImportOp =>
  (call) => {
    const { axes, isKept } = reductionOf(call);
    return build(call, operand(call, 0), axes, isKept);
  };

/** Over one axis; in opsets before 13 over all from one on. */
const softmaxOf = (build: (call: Call, x: Value, axis: number) => Value): ImportOp => (call) => {
  const x = operand(call, 0), { shape } = x;
  const axis = positiveAxis(intOf(call, "axis", -1), shape.length);
  if (intOf(call, "flattened", 0) === 0 || axis === shape.length - 1) return build(call, x, axis);
  const flat = [elementCount(shape.slice(0, axis)), elementCount(shape.slice(axis))];
  return call.g.reshape(build(call, call.g.reshape(x, flat), 1), shape);
};

const layerNorm: ImportOp = (call) => {
  const { g, inputs: [, , bias] } = call, x = operand(call, 0), weight = operand(call, 1);
  const axis = positiveAxis(intOf(call, "axis", -1), x.shape.length);
  const width = elementCount(x.shape.slice(axis)), epsilon = floatOf(call, "epsilon", 1e-5);
  mustBe(call, "stash_type", 1, [1]);
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
  ReduceSum: reduction,
  ReduceMean: reduction,
  ReduceMax: reduction,
  ReduceMin: reduction,
  ReduceSumSquare: reduction,
  ReduceL2: reductionAs(({ g }, x, axes, isKept) => g.sqrt(g.sumOfSquares(x, axes, isKept))),
  ReduceLogSum: reductionAs(({ g }, x, axes, isKept) => g.log(g.sum(x, axes, isKept))),
  Softmax: softmaxOf(({ g }, x, axis) => g.softmax(x, axis)),
  LogSoftmax: softmaxOf(({ g }, x, axis) => g.node("LogSoftmax", [x], [x.shape], { axis })[0]!),
  LayerNormalization: layerNorm,
};
