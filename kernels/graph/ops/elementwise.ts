/**
 * Arithmetic and functions of each element.
 *
 * @module
 */

import { NodeGraph, one } from "../node_graph.ts";
import { broadcastShape } from "../shapes.ts";
import { type Attribute, MICROSOFT, type Value } from "../value.ts";

/** A graph to which operations on each element are added. */
export class ElementwiseGraph extends NodeGraph {
  /** a + b */
  add(a: Value, b: Value): Value {
    return binary(this, "Add", a, b);
  }
  /** a − b */
  sub(a: Value, b: Value): Value {
    return binary(this, "Sub", a, b);
  }
  /** a · b, element by element */
  mul(a: Value, b: Value): Value {
    return binary(this, "Mul", a, b);
  }
  /** a ÷ b; of whole numbers what is left of the fraction towards 0. */
  div(a: Value, b: Value): Value {
    return binary(this, "Div", a, b);
  }
  /** a^b */
  pow(a: Value, b: Value): Value {
    return binary(this, "Pow", a, b);
  }
  /** What a ÷ b leaves: of whole numbers with the sign of b, of others with that of a. */
  mod(a: Value, b: Value): Value {
    return binary(this, "Mod", a, b, a.dtype === "f32" ? { fmod: 1 } : {});
  }
  /** The smaller of a and b; equal ones share the gradient. */
  minimum(a: Value, b: Value): Value {
    return binary(this, "Min", a, b);
  }
  /** The larger of a and b; equal ones share the gradient. */
  maximum(a: Value, b: Value): Value {
    return binary(this, "Max", a, b);
  }
  /** a, but at least `low` and at most `high`, both of them constants. */
  clip(a: Value, low: number = -F32_MAX, high: number = F32_MAX): Value {
    return unary(this, "Clip", a, {}, [this.scalar(low), this.scalar(high)]);
  }
  /** −a */
  neg(a: Value): Value {
    return unary(this, "Neg", a);
  }
  /** 1 ÷ a */
  reciprocal(a: Value): Value {
    return unary(this, "Reciprocal", a);
  }
  /** |a| */
  abs(a: Value): Value {
    return unary(this, "Abs", a);
  }
  /** −1, 0 or 1. */
  sign(a: Value): Value {
    return unary(this, "Sign", a);
  }
  /** The next whole number down. */
  floor(a: Value): Value {
    return unary(this, "Floor", a);
  }
  /** The next whole number up. */
  ceil(a: Value): Value {
    return unary(this, "Ceil", a);
  }
  /** The nearest whole number, of two the even one. */
  round(a: Value): Value {
    return unary(this, "Round", a);
  }
  /** e^a */
  exp(a: Value): Value {
    return unary(this, "Exp", a);
  }
  /** ln a */
  log(a: Value): Value {
    return unary(this, "Log", a);
  }
  /** √a */
  sqrt(a: Value): Value {
    return unary(this, "Sqrt", a);
  }
  /** sin a */
  sin(a: Value): Value {
    return unary(this, "Sin", a);
  }
  /** cos a */
  cos(a: Value): Value {
    return unary(this, "Cos", a);
  }
  /** tanh a */
  tanh(a: Value): Value {
    return unary(this, "Tanh", a);
  }
  /** erf a */
  erf(a: Value): Value {
    return unary(this, "Erf", a);
  }
  /** 1 ÷ (1 + e^−a) */
  sigmoid(a: Value): Value {
    return unary(this, "Sigmoid", a);
  }
  /** max(0, min(1, alpha·a + beta)) */
  hardSigmoid(a: Value, alpha = 1 / 6, beta = 0.5): Value {
    return unary(this, "HardSigmoid", a, { alpha: { float: alpha }, beta: { float: beta } });
  }
  /** max(a, 0) */
  relu(a: Value): Value {
    return unary(this, "Relu", a);
  }
  /** a where it is positive, else alpha·a. */
  leakyRelu(a: Value, alpha = 0.01): Value {
    return unary(this, "LeakyRelu", a, { alpha: { float: alpha } });
  }
  /** a where it is positive, else slope·a; the slope broadcasts to a. */
  prelu(a: Value, slope: Value): Value {
    return unary(this, "PRelu", a, {}, [slope]);
  }
  /** a where it is positive, else alpha·(e^a − 1). */
  elu(a: Value, alpha = 1): Value {
    return unary(this, "Elu", a, { alpha: { float: alpha } });
  }
  /** gamma·elu(a) (Klambauer et al. 2017). */
  selu(a: Value, alpha = 1.6732632423543772, gamma = 1.0507009873554805): Value {
    return this.mul(this.elu(a, alpha), this.scalar(gamma));
  }
  /** ln(1 + e^a) */
  softplus(a: Value): Value {
    return unary(this, "Softplus", a);
  }
  /** a ÷ (1 + |a|) */
  softsign(a: Value): Value {
    return this.div(a, this.add(this.abs(a), this.scalar(1)));
  }
  /** a·sigmoid(a), also called Swish. */
  silu(a: Value): Value {
    return unary(this, "QuickGelu", a, { alpha: { float: 1 } }, [], MICROSOFT);
  }
  /** a·max(0, min(1, a/6 + 1/2)) */
  hardSwish(a: Value): Value {
    return unary(this, "HardSwish", a);
  }
  /** a·tanh(softplus(a)) (Misra 2019). */
  mish(a: Value): Value {
    return this.mul(a, this.tanh(this.softplus(a)));
  }
  /** GELU: GPT-2's tanh approximation by default, or exact with erf. */
  gelu(a: Value, approximate: "tanh" | "none" = "tanh"): Value {
    return approximate === "tanh"
      ? unary(this, "FastGelu", a, {}, [], MICROSOFT)
      : unary(this, "Gelu", a, { approximate });
  }
}

/** The largest f32. */
const F32_MAX = 3.4028234663852886e38;

type Attributes = Record<string, Attribute>;

/** A node whose output is like its first input. */
function unary(
  g: NodeGraph,
  op: string,
  a: Value,
  attributes: Attributes = {},
  rest: readonly Value[] = [],
  domain = "",
): Value {
  return one(g, op, [a, ...rest], a.shape, attributes, domain);
}

/** A node whose inputs are broadcast. */
function binary(g: NodeGraph, op: string, a: Value, b: Value, attributes: Attributes = {}): Value {
  return one(g, op, [a, b], broadcastShape(a.shape, b.shape), attributes);
}
