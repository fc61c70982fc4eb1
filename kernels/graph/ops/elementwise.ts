/**
 * Arithmetic and functions of each element.
 *
 * @module
 */

import {
  addMethods,
  type Attribute,
  type Binary,
  MICROSOFT,
  NodeGraph,
  one,
  type Operand,
  operandsOf,
  type Unary,
  type Value,
} from "../value.ts";
import { broadcastShape } from "../shapes.ts";

/** A graph to which operations on each element are added. */
export class ElementwiseGraph extends NodeGraph {
  /** a + b */
  declare readonly add: Binary;
  /** a − b */
  declare readonly sub: Binary;
  /** a · b, element by element */
  declare readonly mul: Binary;
  /** a ÷ b; of whole numbers what is left of the fraction towards 0. */
  declare readonly div: Binary;
  /** a^b */
  declare readonly pow: Binary;
  /** What a ÷ b leaves: of whole numbers with the sign of b, of others with that of a. */
  mod(a: Operand, b: Operand): Value {
    const [x, y] = operandsOf(this, "Mod", a, b);
    return binary(this, "Mod", x, y, x.dtype === "f32" ? { fmod: 1 } : {});
  }
  /** The smaller of a and b; equal ones share the gradient. */
  minimum(a: Operand, b: Operand): Value {
    return binary(this, "Min", a, b);
  }
  /** The larger of a and b; equal ones share the gradient. */
  maximum(a: Operand, b: Operand): Value {
    return binary(this, "Max", a, b);
  }
  /** a, but at least `low` and at most `high`, both of them constants. */
  clip(a: Value, low: number = -F32_MAX, high: number = F32_MAX): Value {
    return unary(this, "Clip", a, {}, [this.scalar(low), this.scalar(high)]);
  }
  /** −a */
  declare readonly neg: Unary;
  /** 1 ÷ a */
  declare readonly reciprocal: Unary;
  /** |a| */
  declare readonly abs: Unary;
  /** −1, 0 or 1. */
  declare readonly sign: Unary;
  /** The next whole number down. */
  declare readonly floor: Unary;
  /** The next whole number up. */
  declare readonly ceil: Unary;
  /** The nearest whole number, of two the even one. */
  declare readonly round: Unary;
  /** e^a */
  declare readonly exp: Unary;
  /** ln a */
  declare readonly log: Unary;
  /** √a */
  declare readonly sqrt: Unary;
  /** sin a */
  declare readonly sin: Unary;
  /** cos a */
  declare readonly cos: Unary;
  /** tanh a */
  declare readonly tanh: Unary;
  /** erf a */
  declare readonly erf: Unary;
  /** 1 ÷ (1 + e^−a) */
  declare readonly sigmoid: Unary;
  /** max(0, min(1, alpha·a + beta)) */
  hardSigmoid(a: Value, alpha = 1 / 6, beta = 0.5): Value {
    return unary(this, "HardSigmoid", a, { alpha: { float: alpha }, beta: { float: beta } });
  }
  /** max(a, 0) */
  declare readonly relu: Unary;
  /** a where it is positive, else alpha·a. */
  leakyRelu(a: Value, alpha = 0.01): Value {
    return unary(this, "LeakyRelu", a, { alpha: { float: alpha } });
  }
  /** a where it is positive, else slope·a; the slope broadcasts to a. */
  prelu(a: Value, slope: Operand): Value {
    const [x, factor] = operandsOf(this, "PRelu", a, slope);
    return unary(this, "PRelu", x, {}, [factor]);
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
  declare readonly softplus: Unary;
  /** a ÷ (1 + |a|) */
  softsign(a: Value): Value {
    return this.div(a, this.add(this.abs(a), this.scalar(1)));
  }
  /** a·sigmoid(a), also called Swish. */
  silu(a: Value): Value {
    return unary(this, "QuickGelu", a, { alpha: { float: 1 } }, [], MICROSOFT);
  }
  /** a·max(0, min(1, a/6 + 1/2)) */
  declare readonly hardSwish: Unary;
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
function binary(
  g: NodeGraph,
  op: string,
  a: Operand,
  b: Operand,
  attributes: Attributes = {},
): Value {
  const [x, y] = operandsOf(g, op, a, b);
  return one(g, op, [x, y], broadcastShape(x.shape, y.shape), attributes);
}

addMethods(ElementwiseGraph.prototype, "add sub mul div pow", binary);
addMethods(
  ElementwiseGraph.prototype,
  "neg reciprocal abs sign floor ceil round exp log sqrt sin cos tanh erf sigmoid relu softplus hardSwish",
  unary,
);
