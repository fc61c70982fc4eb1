/**
 * Operations that reduce axes.
 *
 * @module
 */

import { type NodeGraph, one } from "../node_graph.ts";
import { positiveAxis, reducedShape } from "../shapes.ts";
import type { Value } from "../value.ts";
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
