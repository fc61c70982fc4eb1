/**
 * Operations that reduce axes.
 *
 * @module
 */

import { type NodeGraph, one, type Value } from "../value.ts";
import { positiveAxis, reducedShape } from "../shapes.ts";
import { ProductGraph } from "./products.ts";

/** A graph to which reductions are added. */
export class ReductionGraph extends ProductGraph {
  /** Sum over axes, all by default; over none of them (`[]`) it is `a` itself. */
  sum(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceSum", a, axes, keep) ?? a;
  }
  /** Mean over axes, all by default; over none of them (`[]`) it is `a` itself. */
  mean(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceMean", a, axes, keep) ?? a;
  }
  /** Sum of squares over axes, all by default; over none of them (`[]`) it is a². */
  sumOfSquares(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceSumSquare", a, axes, keep) ?? this.mul(a, a);
  }
  /** The largest over axes, all by default; the largest share the gradient. */
  max(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceMax", a, axes, keep) ?? a;
  }
  /** The smallest over axes, all by default; the smallest share the gradient. */
  min(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceMin", a, axes, keep) ?? a;
  }
  /** Sum of absolute values over axes, all by default. */
  sumOfAbsolutes(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return this.sum(this.abs(a), axes, keep);
  }
  /** Square root of the sum of squares over axes, all by default; where it is 0 it has no gradient. */
  norm(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceL2", a, axes, keep) ?? this.abs(a);
  }
  /** ln Σ e^a over axes, all by default. */
  logSumExp(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceLogSumExp", a, axes, keep) ?? a;
  }
  /** Product over axes, all by default. */
  product(a: Value, axes: readonly number[] = a.shape.map((_, i) => i), keep = false): Value {
    const at = axes.map((axis) => positiveAxis(axis, a.shape.length));
    const whole = at.reduce((result, axis) => this.#productOf(result, axis), a);
    return this.reshape(whole, reducedShape(a.shape, at, keep));
  }
  /** The product along an axis, of halves that are multiplied: it has a gradient where elements are 0. */
  #productOf(a: Value, axis: number): Value {
    const size = a.shape[axis]!, half = Math.floor(size / 2);
    if (size === 1) return a;
    const [left, right, rest] = this.split(a, axis, size % 2 ? [half, half, 1] : [half, half]);
    const both = this.#productOf(this.mul(left!, right!), axis);
    return rest ? this.mul(both, rest) : both;
  }
  /** Where the largest along an axis is, the first of several, as i64. */
  argMax(a: Value, axis: number, keep = true): Value {
    const at = positiveAxis(axis, a.shape.length);
    const shape = reducedShape(a.shape, [at], keep);
    return this.node("ArgMax", [a], [{ shape, dtype: "i64" }], { axis: at, keepdims: +keep })[0]!;
  }
  /**
   * Sums of the elements of an axis up to each; before each where `exclusive`, from each to the end
   * where `reverse`.
   */
  cumulativeSum(a: Value, axis: number, { exclusive = false, reverse = false } = {}): Value {
    const at = BigInt64Array.of(BigInt(positiveAxis(axis, a.shape.length)));
    return one(this, "CumSum", [a, this.constant(at, [], "i64")], a.shape, {
      exclusive: +exclusive,
      reverse: +reverse,
    });
  }
}

/** A reduction; undefined over no axes. */
function reduce(
  g: NodeGraph,
  op: string,
  a: Value,
  axes: readonly number[] = a.shape.map((_, i) => i),
  isKept = false,
): Value | undefined {
  if (axes.length === 0) return undefined; // To ONNX, no axes are all of them.
  const at = axes.map((axis) => positiveAxis(axis, a.shape.length));
  return one(g, op, [a, g.int64(at)], reducedShape(a.shape, at, isKept), { keepdims: +isKept });
}
