/**
 * Comparisons, logic, and what is chosen by them.
 *
 * @module
 */

import type { DType } from "../../devices/device.ts";
import {
  addMethods,
  type Binary,
  type NodeGraph,
  ONNX_DTYPE,
  type Operand,
  operandsOf,
  type Unary,
  type Value,
} from "../value.ts";
import { broadcastShape } from "../shapes.ts";
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
  declare readonly equal: Binary;
  /** a > b, as bool. */
  declare readonly greater: Binary;
  /** a ≥ b, as bool. */
  declare readonly greaterOrEqual: Binary;
  /** a < b, as bool. */
  declare readonly less: Binary;
  /** a ≤ b, as bool. */
  declare readonly lessOrEqual: Binary;
  /** Whether a is not a number, as bool. */
  declare readonly isNaN: Unary;
  /** p ∧ q, of bools. */
  declare readonly and: (p: Value, q: Value) => Value;
  /** p ∨ q, of bools. */
  declare readonly or: (p: Value, q: Value) => Value;
  /** p ≠ q, of bools. */
  declare readonly xor: (p: Value, q: Value) => Value;
  /** ¬p, of bools. */
  declare readonly not: Unary;
  /** condition ? a : b */
  where(condition: Value, a: Operand, b: Operand): Value {
    const [x, y] = operandsOf(this, "Where", a, b), { dtype } = x;
    if (dtype === "bool") { // No device chooses bools.
      return this.or(this.and(condition, x), this.and(this.not(condition), y));
    }
    const shape = broadcastShape(condition.shape, broadcastShape(x.shape, y.shape));
    return this.node("Where", [condition, x, y], [{ shape, dtype }])[0]!;
  }
}

/** A node that returns bools. */
function truth(g: NodeGraph, op: string, ...all: readonly Operand[]): Value {
  const values = operandsOf(g, op, ...all), shapes = values.map(({ shape }) => shape);
  return g.node(op, values, [{ shape: shapes.reduce(broadcastShape), dtype: "bool" }])[0]!;
}

addMethods(
  ChoiceGraph.prototype,
  "equal greater greaterOrEqual less lessOrEqual isNaN not and or xor",
  truth,
);
