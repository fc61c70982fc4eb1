/**
 * Gradients of operations on each element.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import type { Value } from "../value.ts";
import { binary, fused, type GradientRule, unary, unbroadcast } from "./rule.ts";

/** y' = Φ(x) + x·φ(x). */
function exactGelu(g: Graph, dy: Value, x: Value): Value {
  const half = g.scalar(0.5);
  const cdf = g.add(g.mul(g.erf(g.mul(x, g.scalar(Math.SQRT1_2))), half), half);
  const pdf = g.mul(
    g.exp(g.mul(g.mul(x, x), g.scalar(-0.5))),
    g.scalar(1 / Math.sqrt(2 * Math.PI)),
  );
  return g.mul(dy, g.add(cdf, g.mul(x, pdf)));
}

/** Rules of operations on each element. */
export const ELEMENTWISE: Readonly<Record<string, GradientRule>> = {
  Add: binary((_, dy) => dy, (_, dy) => dy),
  Sub: binary((_, dy) => dy, (g, dy) => g.neg(dy)),
  Mul: binary((g, dy, _, b) => g.mul(dy, b), (g, dy, a) => g.mul(dy, a)),
  Div: binary((g, dy, _, b) => g.div(dy, b), (g, dy, _, b, y) => g.neg(g.div(g.mul(dy, y), b))),
  Neg: unary((g, dy) => g.neg(dy)),
  Exp: unary((g, dy, _, y) => g.mul(dy, y)),
  Log: unary((g, dy, x) => g.div(dy, x)),
  Sqrt: unary((g, dy, _, y) => g.div(g.mul(dy, g.scalar(0.5)), y)),
  Tanh: unary((g, dy, _, y) => g.mul(dy, g.sub(g.scalar(1), g.mul(y, y)))),
  Erf: unary((g, dy, x) =>
    g.mul(dy, g.mul(g.scalar(2 / Math.sqrt(Math.PI)), g.exp(g.neg(g.mul(x, x)))))
  ),
  Sigmoid: unary((g, dy, _, y) => g.mul(dy, g.mul(y, g.sub(g.scalar(1), y)))),
  Relu: unary((g, dy, _, y) => g.where(g.greater(y, g.scalar(0)), dy, g.scalar(0))),
  FastGelu: unary((g, dy, x) => fused(g, "FastGeluGrad", [dy, x])[0]!),
  Gelu: unary(exactGelu),
  Cast: unary((g, dy, x) => g.cast(dy, x.dtype)),
  Where: (g, node, [dy], needed) => {
    const [condition, a, b] = node.inputs as [Value, Value, Value], zero = g.scalar(0);
    return [
      undefined,
      needed[1] ? unbroadcast(g, g.where(condition, dy!, zero), a.shape) : undefined,
      needed[2] ? unbroadcast(g, g.where(condition, zero, dy!), b.shape) : undefined,
    ];
  },
};
