/**
 * Comparisons, logic, and what is chosen by them.
 *
 * @module
 */

import type { DType } from "../../devices/device.ts";
import type { NodeGraph } from "../node_graph.ts";
import { broadcastShape } from "../shapes.ts";
import { ONNX_DTYPE, type Value } from "../value.ts";
import { ElementwiseGraph } from "./elementwise.ts";

/** A graph to which comparisons and choices are added. */
export class ChoiceGraph extends ElementwiseGraph {
  /** Another dtype. */
  cast(a: Value, dtype: DType): Value {
    return a.dtype === dtype ? a : this.node("Cast", [a], [{ shape: a.shape, dtype }], {
      to: ONNX_DTYPE[dtype],
    })[0]!;
  }
  /** a = b, as bool. */
  equal(a: Value, b: Value): Value {
    return truth(this, "Equal", a, b);
  }
  /** a > b, as bool. */
  greater(a: Value, b: Value): Value {
    return truth(this, "Greater", a, b);
  }
  /** a ≥ b, as bool. */
  greaterOrEqual(a: Value, b: Value): Value {
    return truth(this, "GreaterOrEqual", a, b);
  }
  /** a < b, as bool. */
  less(a: Value, b: Value): Value {
    return truth(this, "Less", a, b);
  }
  /** a ≤ b, as bool. */
  lessOrEqual(a: Value, b: Value): Value {
    return truth(this, "LessOrEqual", a, b);
  }
  /** Whether a is not a number, as bool. */
  isNaN(a: Value): Value {
    return truth(this, "IsNaN", a);
  }
  /** a ∧ b, of bools. */
  and(a: Value, b: Value): Value {
    return truth(this, "And", a, b);
  }
  /** a ∨ b, of bools. */
  or(a: Value, b: Value): Value {
    return truth(this, "Or", a, b);
  }
  /** a ≠ b, of bools. */
  xor(a: Value, b: Value): Value {
    return truth(this, "Xor", a, b);
  }
  /** ¬a, of bools. */
  not(a: Value): Value {
    return truth(this, "Not", a);
  }
  /** condition ? a : b */
  where(condition: Value, a: Value, b: Value): Value {
    if (a.dtype === "bool") { // No device chooses bools.
      return this.or(this.and(condition, a), this.and(this.not(condition), b));
    }
    const shape = broadcastShape(condition.shape, broadcastShape(a.shape, b.shape));
    return this.node("Where", [condition, a, b], [{ shape, dtype: a.dtype }])[0]!;
  }
}

/** A node that returns bools. */
function truth(g: NodeGraph, op: string, a: Value, b?: Value): Value {
  const shape = b ? broadcastShape(a.shape, b.shape) : a.shape;
  return g.node(op, b ? [a, b] : [a], [{ shape, dtype: "bool" }])[0]!;
}
