/**
 * Gradients of arithmetic, of functions of each element, and of choices.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import { type Node, numberOf, type Value } from "../value.ts";
import { binary, flat, fused, type GradientRule, unary, unbroadcast } from "./rule.ts";

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

/** With s = sigmoid(alpha·x): y' = s·(1 + alpha·x·(1 − s)). */
function quickGelu(g: Graph, dy: Value, x: Value, _: Value, node: Node): Value {
  const scaled = g.mul(x, g.scalar(numberOf(node, "alpha", 1.702))), s = g.sigmoid(scaled);
  const one = g.scalar(1);
  return g.mul(dy, g.mul(s, g.add(g.mul(scaled, g.sub(one, s)), one)));
}

/** y' = 0 below −3, 1 above 3, x/3 + 1/2 between. */
function hardSwish(g: Graph, dy: Value, x: Value): Value {
  const slope = g.add(g.mul(x, g.scalar(1 / 3)), g.scalar(0.5));
  const below = g.where(g.less(x, g.scalar(-3)), g.scalar(0), slope);
  return g.mul(dy, g.where(g.greater(x, g.scalar(3)), g.scalar(1), below));
}

/** alpha where 0 < y < 1, else 0. */
function hardSigmoid(g: Graph, dy: Value, _: Value, y: Value, node: Node): Value {
  const isBetween = g.and(g.greater(y, g.scalar(0)), g.less(y, g.scalar(1)));
  return g.where(isBetween, g.mul(dy, g.scalar(numberOf(node, "alpha", 0.2))), g.scalar(0));
}

/** dy where x is positive, else what `otherwise` says. */
const ifPositive = (g: Graph, dy: Value, x: Value, otherwise: Value) =>
  g.where(g.greater(x, g.scalar(0)), dy, otherwise);

/** dy for whichever of two is wanted, a half of it for each where they are equal. */
function chosen(g: Graph, dy: Value, isOwn: Value, own: Value, other: Value): Value {
  const rest = g.where(g.equal(own, other), g.mul(dy, g.scalar(0.5)), g.scalar(0));
  return g.where(isOwn, dy, rest);
}

/** d(a^b)/da = b·a^(b−1), where b is often a constant number. */
function powBase(g: Graph, dy: Value, a: Value, b: Value): Value {
  const exponent = b.data?.length === 1 ? Number(b.data[0]) : undefined;
  const power = exponent === 2 ? a : g.pow(a, g.sub(b, g.scalar(1)));
  return g.mul(dy, g.mul(b, power));
}

/** d(a^b)/db = y·ln a, and 0 where a is 0. */
function powExponent(g: Graph, dy: Value, a: Value, y: Value): Value {
  const slope = g.where(g.equal(a, g.scalar(0)), g.scalar(0), g.mul(y, g.log(a)));
  return g.mul(dy, slope);
}

/** Rules of operations on each element. */
export const ELEMENTWISE: Readonly<Record<string, GradientRule>> = {
  Add: binary((_, dy) => dy, (_, dy) => dy),
  Sub: binary((_, dy) => dy, (g, dy) => g.neg(dy)),
  Mul: binary((g, dy, _, b) => g.mul(dy, b), (g, dy, a) => g.mul(dy, a)),
  Div: binary((g, dy, _, b) => g.div(dy, b), (g, dy, _, b, y) => g.neg(g.div(g.mul(dy, y), b))),
  Pow: binary(powBase, (g, dy, a, _, y) => powExponent(g, dy, a, y)),
  // y = a − b·n with a whole n.
  Mod: binary((_, dy) => dy, (g, dy, a, b, y) => g.mul(dy, g.div(g.sub(y, a), b))),
  Min: binary(
    (g, dy, a, b) => chosen(g, dy, g.less(a, b), a, b),
    (g, dy, a, b) => chosen(g, dy, g.less(b, a), b, a),
  ),
  Max: binary(
    (g, dy, a, b) => chosen(g, dy, g.greater(a, b), a, b),
    (g, dy, a, b) => chosen(g, dy, g.greater(b, a), b, a),
  ),
  Clip: unary((g, dy, x, y) => g.where(g.equal(x, y), dy, g.scalar(0))),
  Identity: (g, node, [dy]) => g.stops.has(node) ? [] : [dy],
  Neg: unary((g, dy) => g.neg(dy)),
  Reciprocal: unary((g, dy, _, y) => g.neg(g.mul(dy, g.mul(y, y)))),
  Abs: unary((g, dy, x) => g.mul(dy, g.sign(x))),
  Sign: flat,
  Floor: flat,
  Ceil: flat,
  Round: flat,
  Exp: unary((g, dy, _, y) => g.mul(dy, y)),
  Log: unary((g, dy, x) => g.div(dy, x)),
  Sqrt: unary((g, dy, _, y) => g.div(g.mul(dy, g.scalar(0.5)), y)),
  Sin: unary((g, dy, x) => g.mul(dy, g.cos(x))),
  Cos: unary((g, dy, x) => g.neg(g.mul(dy, g.sin(x)))),
  Tanh: unary((g, dy, _, y) => g.mul(dy, g.sub(g.scalar(1), g.mul(y, y)))),
  Erf: unary((g, dy, x) =>
    g.mul(dy, g.mul(g.scalar(2 / Math.sqrt(Math.PI)), g.exp(g.neg(g.mul(x, x)))))
  ),
  Sigmoid: unary((g, dy, _, y) => g.mul(dy, g.mul(y, g.sub(g.scalar(1), y)))),
  HardSigmoid: unary(hardSigmoid),
  Relu: unary((g, dy, _, y) => ifPositive(g, dy, y, g.scalar(0))),
  LeakyRelu: unary((g, dy, x, _, node) =>
    ifPositive(g, dy, x, g.mul(dy, g.scalar(numberOf(node, "alpha", 0.01))))
  ),
  PRelu: binary(
    (g, dy, x, slope) => ifPositive(g, dy, x, g.mul(dy, slope)),
    (g, dy, x) => g.mul(dy, g.minimum(x, g.scalar(0))),
  ),
  Elu: unary((g, dy, x, y, node) =>
    ifPositive(g, dy, x, g.mul(dy, g.add(y, g.scalar(numberOf(node, "alpha", 1)))))
  ),
  Softplus: unary((g, dy, x) => g.mul(dy, g.sigmoid(x))),
  HardSwish: unary(hardSwish),
  QuickGelu: unary(quickGelu),
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
