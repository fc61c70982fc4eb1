/**
 * Operations on each element.
 *
 * @module
 */

import type { DType } from "../../devices/device.ts";
import { NodeGraph, one } from "../node_graph.ts";
import { broadcastShape } from "../shapes.ts";
import { MICROSOFT, ONNX_DTYPE, type Value } from "../value.ts";

/** A graph to which operations on each element are added. */
export class ElementwiseGraph extends NodeGraph {
  /** a + b */
  add(a: Value, b: Value): Value {
    return one(this, "Add", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a − b */
  sub(a: Value, b: Value): Value {
    return one(this, "Sub", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a · b, element by element */
  mul(a: Value, b: Value): Value {
    return one(this, "Mul", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a ÷ b */
  div(a: Value, b: Value): Value {
    return one(this, "Div", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** −a */
  neg(a: Value): Value {
    return one(this, "Neg", [a], a.shape);
  }
  /** e^a */
  exp(a: Value): Value {
    return one(this, "Exp", [a], a.shape);
  }
  /** ln a */
  log(a: Value): Value {
    return one(this, "Log", [a], a.shape);
  }
  /** √a */
  sqrt(a: Value): Value {
    return one(this, "Sqrt", [a], a.shape);
  }
  /** tanh a */
  tanh(a: Value): Value {
    return one(this, "Tanh", [a], a.shape);
  }
  /** erf a */
  erf(a: Value): Value {
    return one(this, "Erf", [a], a.shape);
  }
  /** 1 ÷ (1 + e^−a) */
  sigmoid(a: Value): Value {
    return one(this, "Sigmoid", [a], a.shape);
  }
  /** max(a, 0) */
  relu(a: Value): Value {
    return one(this, "Relu", [a], a.shape);
  }
  /** GELU: GPT-2's tanh approximation by default, or exact with erf. */
  gelu(a: Value, approximate: "tanh" | "none" = "tanh"): Value {
    return approximate === "tanh"
      ? one(this, "FastGelu", [a], a.shape, {}, MICROSOFT)
      : one(this, "Gelu", [a], a.shape, { approximate });
  }
  /** Another dtype. */
  cast(a: Value, dtype: DType): Value {
    return a.dtype === dtype ? a : this.node("Cast", [a], [{ shape: a.shape, dtype }], {
      to: ONNX_DTYPE[dtype],
    })[0]!;
  }
  /** a > b, as bool. */
  greater(a: Value, b: Value): Value {
    const shape = broadcastShape(a.shape, b.shape);
    return this.node("Greater", [a, b], [{ shape, dtype: "bool" }])[0]!;
  }
  /** condition ? a : b */
  where(condition: Value, a: Value, b: Value): Value {
    const shape = broadcastShape(condition.shape, broadcastShape(a.shape, b.shape));
    return this.node("Where", [condition, a, b], [{ shape, dtype: a.dtype }])[0]!;
  }
}
