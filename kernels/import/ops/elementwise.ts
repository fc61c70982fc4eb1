/**
 * Operations on each element.
 *
 * @module
 */

import type { DType } from "../../devices/device.ts";
import { broadcastShape } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import { dtypeOf } from "../onnx_tensor.ts";
import { constantNumbers, type ImportOp, intOf, operand, textOf } from "./call.ts";

/** The same operation with the same attributes. */
const unary: ImportOp = (call) => {
  const x = operand(call, 0);
  return call.g.node(call.node.op, [x], [x.shape], call.node.attributes);
};

const binaryTo = (dtype?: DType): ImportOp => (call) => {
  const a = operand(call, 0), b = operand(call, 1);
  const shape = broadcastShape(a.shape, b.shape);
  return call.g.node(call.node.op, [a, b], [{ shape, dtype: dtype ?? a.dtype }]);
};

const binary = binaryTo(), comparison = binaryTo("bool");

/** Of any number of operands, two by two. */
const folded = (op: string): ImportOp => ({ g, inputs }) =>
  (inputs as readonly Value[]).reduce((a, b) =>
    g.node(op, [a, b], [broadcastShape(a.shape, b.shape)])[0]!
  );

const mean: ImportOp = (call) => {
  const sum = folded("Add")(call) as Value;
  return call.g.mul(sum, call.g.scalar(1 / call.inputs.length));
};

const cast: ImportOp = (call) => {
  const to = intOf(call, "to", 0), dtype = dtypeOf(to);
  if (!dtype) throw new TypeError(`to must be a type that devices hold, received ${to}`);
  return call.g.cast(operand(call, 0), dtype);
};

const gelu: ImportOp = (call) =>
  call.g.gelu(operand(call, 0), textOf(call, "approximate", "none") === "tanh" ? "tanh" : "none");

/** Bounds are constants, each of which may be left out. */
const clip: ImportOp = (call) => {
  const { g } = call, bound = (place: number) => constantNumbers(call, place)?.[0];
  const [least, most] = [bound(1), bound(2)];
  let x = operand(call, 0);
  const constant = (value: number) =>
    x.dtype === "f32" ? g.scalar(value) : g.cast(g.int64([value]), x.dtype);
  if (least !== undefined) x = g.node("Max", [x, constant(least)], [x.shape])[0]!;
  return most === undefined ? x : g.node("Min", [x, constant(most)], [x.shape])[0]!;
};

/**
 * Files that are exported for use have dropout as it is then: nothing is left out. One that was
 * exported for training says so, and has it.
 */
const dropout: ImportOp = (call) => {
  const x = operand(call, 0), isTraining = constantNumbers(call, 2)?.[0] === 1;
  const ratio = constantNumbers(call, 1)?.[0] ?? 0.5;
  return isTraining ? call.g.dropout(x, ratio) : x;
};

const each = (ops: readonly string[], rule: ImportOp) =>
  Object.fromEntries(ops.map((op) => [op, rule]));

/** By ONNX's names. */
export const ELEMENTWISE_OPS: Readonly<Record<string, ImportOp>> = {
  ...each([
    ...["Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Sin", "Cos", "Floor", "Ceil"],
    ...["Round", "Sign", "Not", "Tanh", "Sigmoid", "Relu", "Softplus", "Softsign", "LeakyRelu"],
    ...["Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "ThresholdedRelu", "Mish"],
  ], unary),
  ...each(["Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "PRelu"], binary),
  ...each(["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"], comparison),
  Sum: folded("Add"),
  Max: folded("Max"),
  Min: folded("Min"),
  Mean: mean,
  Where: (call) => call.g.where(operand(call, 0), operand(call, 1), operand(call, 2)),
  Cast: cast,
  Clip: clip,
  Gelu: gelu,
  "com.microsoft.Gelu": gelu,
  "com.microsoft.FastGelu": (call) => {
    const x = operand(call, 0), bias = call.inputs[1];
    return call.g.gelu(bias ? call.g.add(x, bias) : x);
  },
  Identity: (call) => operand(call, 0),
  Dropout: dropout,
};
