/**
 * Operations on each element.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import type { LayerGraph } from "../../layers/layer.ts";
import { dtypeOf } from "../../onnx/read_file.ts";
import {
  type Call,
  constantNumbers,
  floatOf,
  type ImportOp,
  intOf,
  mustBe,
  operand,
  textOf,
} from "./call.ts";

type Unary = (g: LayerGraph, x: Value, call: Call) => Value;

const unary = (build: Unary): ImportOp => (call) => build(call.g, operand(call, 0), call);

const binary =
  (build: (g: LayerGraph, a: Value, b: Value, call: Call) => Value): ImportOp => (call) =>
    build(call.g, operand(call, 0), operand(call, 1), call);

/** Operations of one operand or two whose method has their name. */
function named(operands: number, names: string): Record<string, ImportOp> {
  return Object.fromEntries(
    names.split(" ").map((op) => {
      const method = (op[0]!.toLowerCase() + op.slice(1)) as "add";
      const places = Array.from({ length: operands }, (_, place) => place);
      const add: ImportOp = (call) =>
        call.g[method](...places.map((place) => operand(call, place)) as [Value, Value]);
      return [op, add];
    }),
  );
}

/** Of any number of operands, two by two. */
const folded = (build: (g: LayerGraph, a: Value, b: Value) => Value) => (call: Call): Value =>
  call.inputs.slice(1).reduce<Value>((a, b) => build(call.g, a, b!), operand(call, 0));

const sum = folded((g, a, b) => g.add(a, b));

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
  const x = operand(call, 0), [least, most] = [bound(1), bound(2)];
  if (x.dtype === "f32") return g.clip(x, least, most);
  const constant = (value: number) => g.cast(g.int64([value]), x.dtype);
  const above = least === undefined ? x : g.maximum(x, constant(least));
  return most === undefined ? above : g.minimum(above, constant(most));
};

/** alpha·elu(x ÷ alpha): its slope at 0 is 1 on both sides. */
const celu: Unary = (g, x, call) => {
  const alpha = g.scalar(floatOf(call, "alpha", 1));
  return g.mul(g.elu(g.div(x, alpha)), alpha);
};

const quickGelu: Unary = (g, x, call) =>
  g.mul(x, g.sigmoid(g.mul(x, g.scalar(floatOf(call, "alpha", 1.702)))));

/** Whole numbers are exponents of others, too. */
const pow: ImportOp = binary((g, a, b) => g.pow(a, g.cast(b, a.dtype)));

const mod: ImportOp = binary((g, a, b, call) => {
  if (a.dtype !== "f32") mustBe(call, "fmod", 0, [0]);
  return g.mod(a, b);
});

/**
 * Files that are exported for use have dropout as it is then: nothing is left out. One that was
 * exported for training says so, and has it.
 */
const dropout: ImportOp = (call) => {
  const x = operand(call, 0), isTraining = constantNumbers(call, 2)?.[0] === 1;
  const ratio = constantNumbers(call, 1)?.[0] ?? 0.5;
  return isTraining ? call.g.dropout(x, ratio) : x;
};

/** By ONNX's names. */
export const ELEMENTWISE_OPS: Readonly<Record<string, ImportOp>> = {
  ...named(1, "Abs Neg Exp Log Sqrt Reciprocal Erf Sin Cos Floor Ceil Round Sign Not"),
  ...named(1, "IsNaN Tanh Sigmoid Relu Softplus Softsign HardSwish Mish"),
  ...named(2, "Add Sub Mul Div And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual"),
  LeakyRelu: unary((g, x, call) => g.leakyRelu(x, floatOf(call, "alpha", 0.01))),
  Elu: unary((g, x, call) => g.elu(x, floatOf(call, "alpha", 1))),
  Selu: unary((g, x, call) => {
    const alpha = floatOf(call, "alpha", 1.67326319217681884765625);
    return g.selu(x, alpha, floatOf(call, "gamma", 1.05070102214813232421875));
  }),
  Celu: unary(celu),
  HardSigmoid: unary((g, x, call) =>
    g.hardSigmoid(x, floatOf(call, "alpha", 0.2), floatOf(call, "beta", 0.5))
  ),
  ThresholdedRelu: unary((g, x, call) =>
    g.where(g.greater(x, g.scalar(floatOf(call, "alpha", 1))), x, g.scalar(0))
  ),
  Pow: pow,
  Mod: mod,
  PRelu: binary((g, a, b) => g.prelu(a, b)),
  Sum: sum,
  Max: folded((g, a, b) => g.maximum(a, b)),
  Min: folded((g, a, b) => g.minimum(a, b)),
  Mean: (call) => call.g.mul(sum(call), call.g.scalar(1 / call.inputs.length)),
  Where: (call) => call.g.where(operand(call, 0), operand(call, 1), operand(call, 2)),
  Cast: cast,
  Clip: clip,
  Gelu: gelu,
  "com.microsoft.Gelu": gelu,
  "com.microsoft.QuickGelu": unary(quickGelu),
  "com.microsoft.FastGelu": (call) => {
    const x = operand(call, 0), bias = call.inputs[1];
    return call.g.gelu(bias ? call.g.add(x, bias) : x);
  },
  Identity: (call) => operand(call, 0),
  Dropout: dropout,
};
