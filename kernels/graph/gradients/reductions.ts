/**
 * Gradients of operations that reduce axes.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import { elementCount } from "../shapes.ts";
import type { Node, Value } from "../value.ts";
import { type GradientRule, unary } from "./rule.ts";

/** Spreads the gradient of a reduction over the axes that it removed. */
function spread(g: Graph, dy: Value, node: Node): Value {
  const x = node.inputs[0]!, axes = [...node.inputs[1]!.data as BigInt64Array].map(Number);
  return g.expand(g.reshape(dy, x.shape.map((size, i) => axes.includes(i) ? 1 : size)), x.shape);
}

/** Rules of reductions. */
export const REDUCTIONS: Readonly<Record<string, GradientRule>> = {
  ReduceSum: unary((g, dy, _x, _y, node) => spread(g, dy, node)),
  ReduceMean: unary((g, dy, x, y, node) =>
    spread(g, g.mul(dy, g.scalar(elementCount(y.shape) / elementCount(x.shape))), node)
  ),
  ReduceSumSquare: unary((g, dy, x, _, node) => g.mul(spread(g, dy, node), g.mul(x, g.scalar(2)))),
};
