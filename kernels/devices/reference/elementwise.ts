/**
 * Operations on each element: arithmetic, comparisons, activations, casts.
 *
 * @module
 */

import type { DType } from "../device.ts";
import { broadcastShape, elementCount, sameShape } from "../../graph/shapes.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import {
  broadcastStrides,
  type NdArray,
  ndArray,
  type Operation,
  positions,
  wide,
} from "./array.ts";

/** `array` with an element for each of `shape`. */
function broadcast(array: NdArray, shape: readonly number[]): Float64Array {
  if (sameShape(array.shape, shape)) return new Float64Array(array.values);
  if (array.values.length === 1) {
    return new Float64Array(elementCount(shape)).fill(array.values[0]!);
  }
  return wide(array.values, positions(shape, broadcastStrides(array.shape, shape)));
}

function unary(compute: (x: number) => number): Operation {
  return ([x]) => ndArray(x!.dtype, x!.shape, new Float64Array(x!.values).map(compute));
}

function binary(compute: (x: number, y: number) => number, dtype?: DType): Operation {
  return ([a, b]) => {
    const shape = broadcastShape(a!.shape, b!.shape);
    const x = broadcast(a!, shape), y = broadcast(b!, shape);
    for (let i = 0; i < x.length; i++) x[i] = compute(x[i]!, y[i]!);
    return ndArray(dtype ?? a!.dtype, shape, x);
  };
}

const compare = (compute: (x: number, y: number) => boolean) =>
  binary((x, y) => +compute(x, y), "bool");

/** An operation on any number of tensors, one after the other. */
const folded = (compute: (x: number, y: number) => number): Operation => (inputs, ...rest) =>
  inputs.reduce((a, b) => binary(compute)([a, b], ...rest) as NdArray);

/** An operation on each element, with numbers that are attributes: their names and defaults. */
const withNumbers = (
  defaults: Readonly<Record<string, number>>,
  compute: (x: number, ...numbers: number[]) => number,
): Operation =>
(inputs, attributes, outputs) => {
  const numbers = Object.entries(defaults).map(([name, otherwise]) =>
    attributes.number(name, otherwise)
  );
  return unary((x) => compute(x, ...numbers))(inputs, attributes, outputs);
};

const divide: Operation = (inputs, ...rest) => {
  const whole = inputs[0]!.dtype === "i32" || inputs[0]!.dtype === "i64";
  return binary((x, y) => whole ? Math.trunc(x / y) : x / y)(inputs, ...rest);
};

/** Of whole numbers the remainder has the sign of the second, with `fmod` that of the first. */
const modulo: Operation = (inputs, attributes, outputs) => {
  const isOfFirst = attributes.number("fmod", 0) === 1;
  return binary((x, y) => isOfFirst ? x % y : x - y * Math.floor(x / y))(
    inputs,
    attributes,
    outputs,
  );
};

const clip: Operation = ([x, low, high], attributes, outputs) => {
  const least = low?.values[0] ?? -Infinity, most = high?.values[0] ?? Infinity;
  return unary((v) => Math.min(Math.max(v, least), most))([x!], attributes, outputs);
};

const where: Operation = ([condition, a, b]) => {
  const shape = broadcastShape(condition!.shape, broadcastShape(a!.shape, b!.shape));
  const x = broadcast(a!, shape), y = broadcast(b!, shape);
  return ndArray(a!.dtype, shape, broadcast(condition!, shape).map((c, i) => c ? x[i]! : y[i]!));
};

const cast: Operation = ([x], attributes) => {
  const to = attributes.number("to", 0);
  const dtype = (Object.keys(ONNX_DTYPE) as DType[]).find((dtype) => ONNX_DTYPE[dtype] === to);
  if (!dtype) throw new TypeError(`Cannot cast: "to" must be a known dtype, received ${to}`);
  const convert = dtype === "bool"
    ? (v: number) => +(v !== 0)
    : dtype === "i64"
    ? Math.trunc
    : null;
  const values = x!.values;
  return ndArray(dtype, x!.shape, convert ? new Float64Array(values).map(convert) : values);
};

/**
 * The error function, by a series whose terms are all positive:
 * erf x = 2/√π · e^(−x²) · Σ 2^n x^(2n+1) / (1·3·…·(2n+1)).
 */
export function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x); // 1 − erf 6 is 2e-17.
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > Math.abs(sum) * 1e-17; n++) {
    term *= 2 * x * x / (2 * n + 1);
    sum += term;
  }
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const exactGelu = (x: number) => x / 2 * (1 + erf(x / Math.SQRT2));
const tanhGelu = (x: number) =>
  x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

const gelu: Operation = (inputs, attributes, outputs) => {
  const compute = attributes.string("approximate", "none") === "tanh" ? tanhGelu : exactGelu;
  return unary(compute)(inputs, attributes, outputs);
};

/** To the nearest whole number, of two the even one. */
function roundToEven(x: number): number {
  const down = Math.floor(x), rest = x - down;
  return rest === 0.5 ? down + Math.abs(down % 2) : rest < 0.5 ? down : down + 1;
}

/** `FastGelu` adds an optional bias first. */
const fastGelu: Operation = ([x, bias], attributes, outputs) => {
  const sum = bias ? binary((a, b) => a + b)([x!, bias], attributes, outputs) as NdArray : x!;
  return unary(tanhGelu)([sum], attributes, outputs);
};

/** Operations on each element by name; Microsoft's carry their domain. */
export const ELEMENTWISE: Readonly<Record<string, Operation>> = {
  Identity: unary((x) => x),
  Neg: unary((x) => -x),
  Exp: unary(Math.exp),
  Log: unary(Math.log),
  Sqrt: unary(Math.sqrt),
  Reciprocal: unary((x) => 1 / x),
  Abs: unary(Math.abs),
  Sign: unary(Math.sign),
  Floor: unary(Math.floor),
  Ceil: unary(Math.ceil),
  Round: unary(roundToEven),
  Sin: unary(Math.sin),
  Cos: unary(Math.cos),
  Tanh: unary(Math.tanh),
  Erf: unary(erf),
  Sigmoid: unary(sigmoid),
  HardSigmoid: withNumbers(
    { alpha: 0.2, beta: 0.5 },
    (x, alpha, beta) => Math.min(Math.max(alpha! * x + beta!, 0), 1),
  ),
  Relu: unary((x) => x < 0 ? 0 : x),
  LeakyRelu: withNumbers({ alpha: 0.01 }, (x, alpha) => x < 0 ? alpha! * x : x),
  PRelu: binary((x, slope) => x < 0 ? slope * x : x),
  Elu: withNumbers({ alpha: 1 }, (x, alpha) => x < 0 ? alpha! * Math.expm1(x) : x),
  Softplus: unary((x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))),
  HardSwish: unary((x) => x * Math.min(Math.max(x / 6 + 0.5, 0), 1)),
  Gelu: gelu,
  "com.microsoft.FastGelu": fastGelu,
  "com.microsoft.QuickGelu": withNumbers({ alpha: 1.702 }, (x, alpha) => x * sigmoid(alpha! * x)),
  Add: binary((x, y) => x + y),
  Sub: binary((x, y) => x - y),
  Mul: binary((x, y) => x * y),
  Div: divide,
  Pow: binary(Math.pow),
  Mod: modulo,
  Min: folded(Math.min),
  Max: folded(Math.max),
  Clip: clip,
  Equal: compare((x, y) => x === y),
  Greater: compare((x, y) => x > y),
  Less: compare((x, y) => x < y),
  GreaterOrEqual: compare((x, y) => x >= y),
  LessOrEqual: compare((x, y) => x <= y),
  And: compare((x, y) => x !== 0 && y !== 0),
  Or: compare((x, y) => x !== 0 || y !== 0),
  Xor: compare((x, y) => x !== y),
  Not: unary((x) => +!x),
  IsNaN: ([x]) => ndArray("bool", x!.shape, new Float64Array(x!.values).map((v) => +isNaN(v))),
  Where: where,
  Cast: cast,
};
