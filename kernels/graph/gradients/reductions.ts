/**
 * Gradients of operations that reduce axes.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import { elementCount } from "../shapes.ts";
import type { Node, Value } from "../value.ts";
import { type GradientRule, unary } from "./rule.ts";

const axesOf = (node: Node) => [...node.inputs[1]!.data as BigInt64Array].map(Number);

/** The result of a reduction, or its gradient, with the axes that it removed. */
function kept(g: Graph, y: Value, node: Node): Value {
  const x = node.inputs[0]!, axes = axesOf(node);
  return g.reshape(y, x.shape.map((size, i) => axes.includes(i) ? 1 : size));
}

/** Spreads the gradient of a reduction over the axes that it removed. */
const spread = (g: Graph, dy: Value, node: Node) =>
  g.expand(kept(g, dy, node), node.inputs[0]!.shape);

/** dy for the elements that are the result, in equal shares. */
const extremum: GradientRule = unary((g, dy, x, y, node) => {
  const isResult = g.cast(g.equal(x, kept(g, y, node)), "f32");
  const share = g.div(kept(g, dy, node), g.sum(isResult, axesOf(node), true));
  return g.mul(isResult, share);
});

/** y' = x/y, and 0 where y is 0. */
const norm: GradientRule = unary((g, dy, x, y, node) => {
  const zero = g.scalar(0);
  return g.mul(x, kept(g, g.where(g.equal(y, zero), zero, g.div(dy, y)), node));
});

/** Rules of reductions. */
export const REDUCTIONS: Readonly<Record<string, GradientRule>> = {
  ReduceSum: unary((g, dy, _x, _y, node) => spread(g, dy, node)),
  ReduceMean: unary((g, dy, x, y, node) =>
    spread(g, g.mul(dy, g.scalar(elementCount(y.shape) / elementCount(x.shape))), node)
  ),
  ReduceSumSquare: unary((g, dy, x, _, node) => g.mul(spread(g, dy, node), g.mul(x, g.scalar(2)))),
  ReduceMax: extremum,
  ReduceMin: extremum,
  ReduceL2: norm,
  ReduceLogSumExp: unary((g, dy, x, y, node) =>
    g.mul(kept(g, dy, node), g.exp(g.sub(x, kept(g, y, node))))
  ),
  CumSum: unary((g, dy, _x, _y, node) =>
    g.node("CumSum", [dy, node.inputs[1]!], [dy.shape], {
      ...node.attributes,
      reverse: node.attributes.reverse === 1 ? 0 : 1,
    })[0]!
  ),
};
