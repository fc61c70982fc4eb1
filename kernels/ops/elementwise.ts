/**
 * Operations on each element: arithmetic, functions, comparisons and choices.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import { assertInput } from "../errors.ts";
import { broadcastShape, elementCount, type Ints, sameShape } from "../graph/shapes.ts";
import {
  dtypeNumbered,
  MICROSOFT,
  type Node,
  numberOf,
  ONNX_DTYPE,
  operandsOf,
  type Settings,
  textOf,
  TROUPE,
  type Value,
  type ValueType,
} from "../graph/value.ts";
import { arithmetic } from "../onnx/rewrite.ts";
import { dtypeOf } from "../onnx/read_file.ts";
import { floatOf } from "../onnx/signature.ts";
import { F32_MAX } from "../precision.ts";
import { broadcastStrides, type NdArray, ndArray, positions, wide } from "./array.ts";
import type { Builder } from "./builder.ts";
import {
  type Call,
  constantNumbers,
  flat,
  type GradientRule,
  isSet,
  type Known,
  like,
  type Methods,
  methodsOf,
  mustBe,
  one,
  type Op,
  operand,
  operands,
  type Ops,
  type Read,
  type Shape,
  shaped,
  slope,
  withMethods,
} from "./op.ts";

/** Returns the shape to which the inputs broadcast. */
const broadcast = (dtypeOf = ({ inputs: [a] }: Known): DType => a.dtype): Shape => (known) =>
  shaped(known, known.inputs.map(({ shape }) => shape).reduce(broadcastShape), dtypeOf(known));

/** Broadcasts an array to a shape. */
function spread(array: NdArray, shape: Ints): Float64Array {
  if (sameShape(array.shape, shape)) return new Float64Array(array.values);
  if (array.values.length === 1) {
    return new Float64Array(elementCount(shape)).fill(array.values[0]!);
  }
  return wide(array.values, positions(shape, broadcastStrides(array.shape, shape)));
}

const map = (type: ValueType, { values }: NdArray, compute: (x: number) => number): NdArray =>
  ndArray(type, new Float64Array(values).map(compute));

function combine(type: ValueType, a: NdArray, b: NdArray, compute: Compute): NdArray {
  const x = spread(a, type.shape), y = spread(b, type.shape);
  for (let i = 0; i < x.length; i++) x[i] = compute(x[i]!, y[i]!);
  return ndArray(type, x);
}

type Compute = (x: number, y: number) => number;
type Rule = (g: Builder, dy: Value, x: Value, y: Value, node: Node) => Value;
type Slope = (g: Builder, dy: Value, a: Value, b: Value, y: Value) => Value;

/** Returns an operation with one operand; nothing is trained through it without a rule. */
const unary = (compute: (x: number) => number, rule?: Rule): Op => ({
  operands: 1,
  shape: broadcast(),
  gradient: rule ? slope(rule) : flat,
  reference: ([x], _, [y]) => map(y, x, compute),
});

/** Returns an operation with one operand and numeric attributes, given with their defaults. */
function scaled(
  method: "hardSigmoid" | "leakyRelu" | "elu",
  defaults: Readonly<Record<string, number>>,
  compute: (x: number, ...numbers: number[]) => number,
  rule: (g: Builder, dy: Value, x: Value, y: Value, ...numbers: number[]) => Value,
): Op {
  const numbers = (node: Settings) =>
    Object.entries(defaults).map(([name, otherwise]) => numberOf(node, name, otherwise));
  return {
    shape: broadcast(),
    gradient: slope((g, dy, x, y, node) => rule(g, dy, x, y, ...numbers(node))),
    reference: ([x], node, [y]) => {
      const all = numbers(node);
      return map(y, x, (v) => compute(v, ...all));
    },
    read: (call) => call.g[method](operand(call, 0), ...numbers(call)),
  };
}

/** Returns an operation with two operands, which are broadcast. */
const binary = (compute: Compute, left?: Slope, right?: Slope): Op => ({
  operands: 2,
  shape: broadcast(),
  gradient: left && right ? slopes(left, right) : flat,
  reference: ([a, b], _, [y]) => combine(y, a, b!, compute),
});

const slopes = (left: Slope, right: Slope): GradientRule => (g, { inputs, outputs: [y] }, [dy]) => {
  const [a, b] = inputs as [Value, Value];
  return [() => left(g, dy!, a, b, y!), () => right(g, dy!, a, b, y!)];
};

const comparison = (compute: (x: number, y: number) => boolean): Op => ({
  ...binary((x, y) => +compute(x, y)),
  shape: broadcast(() => "bool"),
});

/** Returns a minimum or maximum; in files it has any number of operands, combined in pairs. */
function extremum(
  method: "minimum" | "maximum",
  compute: Compute,
  isBefore: "less" | "greater",
): Op {
  /** Returns dy for the chosen operand, and half of it for each of two equal ones. */
  const chosen = (g: Builder, dy: Value, own: Value, other: Value) => {
    const isOwn = g[isBefore](own, other);
    const rest = g.where(g.equal(own, other), g.mul(dy, g.scalar(0.5)), g.scalar(0));
    return g.where(isOwn, dy, rest);
  };
  return {
    ...binary(compute, chosen, (g, dy, a, b) => chosen(g, dy, b, a)),
    method,
    reference: (inputs, _, [y]) => inputs.reduce((a, b) => combine(y, a, b, compute)),
    read: folded(method),
  };
}

/** Combines any number of operands in pairs. */
const folded = (method: "add" | "minimum" | "maximum") => (call: Call): Value =>
  call.inputs.slice(1).reduce<Value>((a, b) => call.g[method](a, b!), operand(call, 0));

/** Returns a function of one operand in files, which is composed of other operations. */
const composed = (build: (g: Builder, x: Value, call: Call) => Value): Op => ({
  read: (call) => build(call.g, operand(call, 0), call),
});

/** Returns dy where x is positive, and `otherwise` elsewhere. */
const ifPositive = (g: Builder, dy: Value, x: Value, otherwise: Value) =>
  g.where(g.greater(x, g.scalar(0)), dy, otherwise);

/**
 * Computes the error function by a series of positive terms:
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

/** Rounds to the nearest whole number, ties to even. */
function roundToEven(x: number): number {
  const down = Math.floor(x), rest = x - down;
  return rest === 0.5 ? down + Math.abs(down % 2) : rest < 0.5 ? down : down + 1;
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const exactGelu = (x: number) => x / 2 * (1 + erf(x / Math.SQRT2));
const tanhGelu = (x: number) =>
  x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

const readGelu: Read = (call) =>
  call.g.gelu(operand(call, 0), textOf(call, "approximate", "none") === "tanh" ? "tanh" : "none");

/** Arithmetic, minimum, maximum and remainder. */
const ARITHMETIC: Ops = {
  Add: binary((x, y) => x + y, (_, dy) => dy, (_, dy) => dy),
  Sub: binary((x, y) => x - y, (_, dy) => dy, (g, dy) => g.neg(dy)),
  Mul: binary((x, y) => x * y, (g, dy, _, b) => g.mul(dy, b), (g, dy, a) => g.mul(dy, a)),
  Div: {
    ...binary(
      (x, y) => x / y,
      (g, dy, _, b) => g.div(dy, b),
      (g, dy, _, b, y) => g.neg(g.div(g.mul(dy, y), b)),
    ),
    reference: ([a, b], _, [y]) => {
      const isWhole = y.dtype === "i32" || y.dtype === "i64";
      return combine(y, a, b!, (x, y) => isWhole ? Math.trunc(x / y) : x / y);
    },
  },
  Pow: {
    ...binary(
      Math.pow,
      // d(a^b)/da = b·a^(b−1), and 0 where b is 0, also at a = 0; b is often a constant number.
      (g, dy, a, b) => {
        const exponent = b.data?.length === 1 ? Number(b.data[0]) : undefined;
        const power = exponent === 2 ? a : g.pow(a, g.sub(b, g.scalar(1)));
        const slope = g.mul(dy, g.mul(b, power));
        return exponent ? slope : g.where(g.equal(b, g.scalar(0)), g.scalar(0), slope);
      },
      // d(a^b)/db = y·ln a, and 0 where a is 0.
      (g, dy, a, _, y) =>
        g.mul(dy, g.where(g.equal(a, g.scalar(0)), g.scalar(0), g.mul(y, g.log(a)))),
    ),
    // The exponent may have another type.
    read: (call) => {
      const [a, b] = operands(call, 2);
      return call.g.pow(a, call.g.cast(b, a.dtype));
    },
  },
  Mod: {
    shape: broadcast(),
    // y = a − b·n with a whole n.
    gradient: slopes((_, dy) => dy, (g, dy, a, b, y) => g.mul(dy, g.div(g.sub(y, a), b))),
    // The remainder has the sign of the second operand, with `fmod` that of the first.
    reference: ([a, b], node, [y]) => {
      const isOfFirst = isSet(node, "fmod");
      return combine(y, a, b!, (x, y) => isOfFirst ? x % y : x - y * Math.floor(x / y));
    },
    read: (call) => {
      const [a, b] = operands(call, 2);
      if (a.dtype !== "f32") mustBe(call, "fmod", 0, [0]);
      return call.g.mod(a, b);
    },
  },
  Min: extremum("minimum", Math.min, "less"),
  Max: extremum("maximum", Math.max, "greater"),
  Sum: { read: folded("add") },
  Mean: { read: (call) => call.g.mul(folded("add")(call), call.g.scalar(1 / call.inputs.length)) },
  Neg: unary((x) => -x, (g, dy) => g.neg(dy)),
  Reciprocal: unary((x) => 1 / x, (g, dy, _, y) => g.neg(g.mul(dy, g.mul(y, y)))),
  [`${TROUPE}.AdamW`]: {
    shape: like(0, 2, 3),
    // With g = d·scale, rest1 = 1 − β₁ and rest2 = 1 − β₂: m ← β₁m + rest1·g, v ← β₂v + rest2·g²,
    // w ← w·decay − m·rate/(√v + ε), where the corrections of the moments' bias are folded into rate
    // and ε; see `optimizer.ts`.
    lower: (write, node) => {
      const [w, d, m, v, scale, decay, rate, epsilon] = node.input as [string, ...string[]];
      const [nextW, nextM, nextV] = node.output, { add, sub, mul, div, scalar } = arithmetic(write);
      const factor = (name: string) => scalar(floatOf(node, name, 0));
      const g = mul(d!, scale!);
      const first = add(mul(m!, factor("beta1")), mul(g, factor("rest1")), nextM);
      const second = add(mul(v!, factor("beta2")), mul(mul(g, g), factor("rest2")), nextV);
      const step = div(mul(first, rate!), add(write.node("Sqrt", [second]), epsilon!));
      sub(mul(w, decay!), step, nextW);
    },
  },
};

/** Functions of each element. */
const FUNCTIONS: Ops = {
  Abs: unary(Math.abs, (g, dy, x) => g.mul(dy, g.sign(x))),
  Sign: unary(Math.sign),
  Floor: unary(Math.floor),
  Ceil: unary(Math.ceil),
  Round: unary(roundToEven),
  Exp: unary(Math.exp, (g, dy, _, y) => g.mul(dy, y)),
  Log: unary(Math.log, (g, dy, x) => g.div(dy, x)),
  Sqrt: unary(Math.sqrt, (g, dy, _, y) => g.div(g.mul(dy, g.scalar(0.5)), y)),
  Sin: unary(Math.sin, (g, dy, x) => g.mul(dy, g.cos(x))),
  Cos: unary(Math.cos, (g, dy, x) => g.neg(g.mul(dy, g.sin(x)))),
  Atan: unary(Math.atan, (g, dy, x) => g.div(dy, g.add(g.mul(x, x), g.scalar(1)))),
  Tanh: unary(Math.tanh, (g, dy, _, y) => g.mul(dy, g.sub(g.scalar(1), g.mul(y, y)))),
  Erf: unary(
    erf,
    (g, dy, x) => g.mul(dy, g.mul(g.scalar(2 / Math.sqrt(Math.PI)), g.exp(g.neg(g.mul(x, x))))),
  ),
  Sigmoid: unary(sigmoid, (g, dy, _, y) => g.mul(dy, g.mul(y, g.sub(g.scalar(1), y)))),
  Relu: unary((x) => x < 0 ? 0 : x, (g, dy, _, y) => ifPositive(g, dy, y, g.scalar(0))),
  Softplus: unary(
    (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
    (g, dy, x) => g.mul(dy, g.sigmoid(x)),
  ),
  HardSwish: unary(
    (x) => x * Math.min(Math.max(x / 6 + 0.5, 0), 1),
    // y' = 0 below −3, 1 above 3, x/3 + 1/2 between.
    (g, dy, x) => {
      const slope = g.add(g.mul(x, g.scalar(1 / 3)), g.scalar(0.5));
      const below = g.where(g.less(x, g.scalar(-3)), g.scalar(0), slope);
      return g.mul(dy, g.where(g.greater(x, g.scalar(3)), g.scalar(1), below));
    },
  ),
  HardSigmoid: scaled(
    "hardSigmoid",
    { alpha: 0.2, beta: 0.5 },
    (x, alpha, beta) => Math.min(Math.max(alpha! * x + beta!, 0), 1),
    // alpha where 0 < y < 1, and 0 elsewhere.
    (g, dy, _, y, alpha) => {
      const isBetween = g.and(g.greater(y, g.scalar(0)), g.less(y, g.scalar(1)));
      return g.where(isBetween, g.mul(dy, g.scalar(alpha!)), g.scalar(0));
    },
  ),
  LeakyRelu: scaled(
    "leakyRelu",
    { alpha: 0.01 },
    (x, alpha) => x < 0 ? alpha! * x : x,
    (g, dy, x, _, alpha) => ifPositive(g, dy, x, g.mul(dy, g.scalar(alpha!))),
  ),
  Elu: scaled(
    "elu",
    { alpha: 1 },
    (x, alpha) => x < 0 ? alpha! * Math.expm1(x) : x,
    (g, dy, x, y, alpha) => ifPositive(g, dy, x, g.mul(dy, g.add(y, g.scalar(alpha!)))),
  ),
  PRelu: {
    ...binary(
      (x, slope) => x < 0 ? slope * x : x,
      (g, dy, x, slope) => ifPositive(g, dy, x, g.mul(dy, slope)),
      (g, dy, x) => g.mul(dy, g.minimum(x, g.scalar(0))),
    ),
    method: "prelu",
    shape: (known) => {
      const [x, slope] = known.inputs as [ValueType, ValueType];
      const fits = sameShape(broadcastShape(x.shape, slope.shape), x.shape);
      const must = `slope must broadcast to [${x.shape}]`;
      assertInput(fits, "compute PRelu", must, `[${slope.shape}]`);
      return shaped(known, x.shape);
    },
  },
  Selu: composed((g, x, call) => {
    const alpha = numberOf(call, "alpha", 1.67326319217681884765625);
    return g.selu(x, alpha, numberOf(call, "gamma", 1.05070102214813232421875));
  }),
  // alpha·elu(x ÷ alpha): its slope at 0 is 1 on both sides.
  Celu: composed((g, x, call) => {
    const alpha = g.scalar(numberOf(call, "alpha", 1));
    return g.mul(g.elu(g.div(x, alpha)), alpha);
  }),
  ThresholdedRelu: composed((g, x, call) =>
    g.where(g.greater(x, g.scalar(numberOf(call, "alpha", 1))), x, g.scalar(0))
  ),
  Softsign: composed((g, x) => g.softsign(x)),
  Mish: composed((g, x) => g.mish(x)),
  Gelu: {
    shape: broadcast(),
    // y' = Φ(x) + x·φ(x).
    gradient: slope((g, dy, x) => {
      const half = g.scalar(0.5);
      const cdf = g.add(g.mul(g.erf(g.mul(x, g.scalar(Math.SQRT1_2))), half), half);
      const pdf = g.mul(
        g.exp(g.mul(g.mul(x, x), g.scalar(-0.5))),
        g.scalar(1 / Math.sqrt(2 * Math.PI)),
      );
      return g.mul(dy, g.add(cdf, g.mul(x, pdf)));
    }),
    reference: ([x], node, [y]) =>
      map(y, x, textOf(node, "approximate", "none") === "tanh" ? tanhGelu : exactGelu),
    read: readGelu,
  },
  [`${MICROSOFT}.Gelu`]: { shape: broadcast(), read: readGelu },
  // An optional bias is added first.
  [`${MICROSOFT}.FastGelu`]: {
    shape: broadcast(),
    gradient: slope((g, dy, x) => one(g, FUNCTIONS, `${TROUPE}.FastGeluGrad`, [dy, x])),
    reference: ([x, bias], _, [y]) =>
      map(y, bias ? combine(y, x, bias, (a, b) => a + b) : x, tanhGelu),
    read: (call) => {
      const x = operand(call, 0), bias = call.inputs[1];
      return call.g.gelu(bias ? call.g.add(x, bias) : x);
    },
    lower: (write, { input, output }) =>
      void write.node("Gelu", input, { approximate: "tanh" }, output[0]),
  },
  [`${TROUPE}.FastGeluGrad`]: {
    shape: like(0),
    // With c = √(2/π), u = c(x + 0.044715x³): y = x·h, h = (1 + tanh u)/2, y' = h·(1 + x·2(1−h)·u').
    lower: (write, { input: [dy, x], output: [dx] }) => {
      const { add, sub, mul, scalar } = arithmetic(write);
      const c = Math.sqrt(2 / Math.PI), c3 = c * 0.044715, x2 = mul(x!, x!);
      const tanh = write.node("Tanh", [mul(x!, add(mul(x2, scalar(c3)), scalar(c)))]);
      const h = add(mul(tanh, scalar(0.5)), scalar(0.5));
      const slope = add(mul(x2, scalar(3 * c3)), scalar(c));
      const rest = mul(mul(x!, slope), sub(scalar(2), mul(h, scalar(2))));
      mul(dy!, mul(h, add(rest, scalar(1))), dx);
    },
  },
  [`${MICROSOFT}.QuickGelu`]: {
    shape: broadcast(),
    // With s = sigmoid(alpha·x): y' = s·(1 + alpha·x·(1 − s)).
    gradient: slope((g, dy, x, _, node) => {
      const scaled = g.mul(x, g.scalar(numberOf(node, "alpha", 1.702))), s = g.sigmoid(scaled);
      const one = g.scalar(1);
      return g.mul(dy, g.mul(s, g.add(g.mul(scaled, g.sub(one, s)), one)));
    }),
    reference: ([x], node, [y]) => {
      const alpha = numberOf(node, "alpha", 1.702);
      return map(y, x, (v) => v * sigmoid(alpha * v));
    },
    read: (call) => {
      const { g } = call, x = operand(call, 0), alpha = g.scalar(numberOf(call, "alpha", 1.702));
      return g.mul(x, g.sigmoid(g.mul(x, alpha)));
    },
    lower: (write, node) => {
      const { mul, scalar } = arithmetic(write), alpha = floatOf(node, "alpha", 1.702);
      const [x] = node.input as [string], inner = alpha === 1 ? x : mul(x, scalar(alpha));
      mul(x, write.node("Sigmoid", [inner]), node.output[0]);
    },
  },
  Clip: {
    settings: [1, 2],
    shape: like(0),
    gradient: slope((g, dy, x, y) => g.where(g.equal(x, y), dy, g.scalar(0))),
    reference: ([x, low, high], _, [y]) => {
      const least = low?.values[0] ?? -Infinity, most = high?.values[0] ?? Infinity;
      return map(y, x, (v) => Math.min(Math.max(v, least), most));
    },
    // Bounds are optional constants.
    read: (call) => {
      const { g } = call, bound = (place: number) => constantNumbers(call, place)?.[0];
      const x = operand(call, 0), [least, most] = [bound(1), bound(2)];
      if (x.dtype === "f32") return g.clip(x, least, most);
      const constant = (value: number) => g.cast(g.int64([value]), x.dtype);
      const above = least === undefined ? x : g.maximum(x, constant(least));
      return most === undefined ? above : g.minimum(above, constant(most));
    },
  },
  Identity: {
    shape: broadcast(),
    gradient: (g, node, [dy]) => g.stops.has(node) ? [] : [dy],
    reference: ([x]) => x,
    read: (call) => operand(call, 0),
  },
  // Dropout applies only in files that were exported for training.
  Dropout: {
    settings: [1, 2],
    read: (call) => {
      const x = operand(call, 0), isTraining = constantNumbers(call, 2)?.[0] === 1;
      const ratio = constantNumbers(call, 1)?.[0] ?? 0.5;
      return isTraining ? call.g.dropout(x, ratio) : x;
    },
  },
};

/** Comparisons, logic and choices. */
const CHOICES: Ops = {
  Equal: comparison((x, y) => x === y),
  Greater: comparison((x, y) => x > y),
  Less: comparison((x, y) => x < y),
  GreaterOrEqual: comparison((x, y) => x >= y),
  LessOrEqual: comparison((x, y) => x <= y),
  And: comparison((x, y) => x !== 0 && y !== 0),
  Or: comparison((x, y) => x !== 0 || y !== 0),
  Xor: comparison((x, y) => x !== y),
  Not: unary((x) => +!x),
  IsNaN: { ...unary((x) => +isNaN(x)), shape: broadcast(() => "bool") },
  Where: {
    shape: broadcast(({ inputs }) => inputs[1]!.dtype),
    gradient: (g, { inputs: [condition] }, [dy]) => {
      const zero = g.scalar(0), where = (a: Value, b: Value) => () => g.where(condition!, a, b);
      return [undefined, where(dy!, zero), where(zero, dy!)];
    },
    reference: (inputs, _, [type]) => {
      const [condition, x, y] = inputs.map((one) => spread(one, type.shape));
      return ndArray(type, condition!.map((c, i) => c ? x![i]! : y![i]!));
    },
    read: (call) => call.g.where(...operands(call, 3)),
  },
  Cast: {
    shape: (known) => {
      const dtype = dtypeNumbered(numberOf(known, "to", 0));
      return dtype && shaped(known, known.inputs[0].shape, dtype);
    },
    gradient: slope((g, dy, x) => g.cast(dy, x.dtype)),
    reference: ([{ values }], _, [y]) => {
      if (y.dtype === "bool") return ndArray(y, Array.from(values, (v) => +(v !== 0)));
      return ndArray(y, y.dtype === "i64" ? Array.from(values, Math.trunc) : values);
    },
    read: (call) => {
      const to = numberOf(call, "to", 0), dtype = dtypeOf(to);
      if (!dtype) throw new TypeError(`to must be a type that devices hold, received ${to}`);
      return call.g.cast(operand(call, 0), dtype);
    },
  },
};

/** Operations on each element. */
export const ELEMENTWISE: Ops = withMethods({ ...ARITHMETIC, ...FUNCTIONS, ...CHOICES });

const withAlpha = (g: Builder, op: string, a: Value, alpha: number) =>
  one(g, ELEMENTWISE, op, [a], { alpha: { float: alpha } });

/** Methods that add operations on each element. */
export const ELEMENTWISE_METHODS: Methods = {
  ...methodsOf(ELEMENTWISE),
  mod: (g, a, b) => {
    const [x, y] = operandsOf(g, "Mod", a, b);
    return one(g, ELEMENTWISE, "Mod", [x, y], x.dtype === "f32" ? { fmod: 1 } : {});
  },
  clip: (g, a, low = -F32_MAX, high = F32_MAX) =>
    one(g, ELEMENTWISE, "Clip", [a, g.scalar(low), g.scalar(high)]),
  hardSigmoid: (g, a, alpha = 1 / 6, beta = 0.5) =>
    one(g, ELEMENTWISE, "HardSigmoid", [a], { alpha: { float: alpha }, beta: { float: beta } }),
  leakyRelu: (g, a, alpha = 0.01) => withAlpha(g, "LeakyRelu", a, alpha),
  elu: (g, a, alpha = 1) => withAlpha(g, "Elu", a, alpha),
  selu: (g, a, alpha = 1.6732632423543772, gamma = 1.0507009873554805) =>
    g.mul(g.elu(a, alpha), g.scalar(gamma)),
  softsign: (g, a) => g.div(a, g.add(g.abs(a), g.scalar(1))),
  silu: (g, a) => withAlpha(g, `${MICROSOFT}.QuickGelu`, a, 1),
  mish: (g, a) => g.mul(a, g.tanh(g.softplus(a))),
  gelu: (g, a, approximate = "tanh") => {
    if (approximate !== "tanh") return one(g, ELEMENTWISE, "Gelu", [a], { approximate });
    // ONNX Runtime has none of a scalar.
    if (a.shape.length === 0) return g.reshape(g.gelu(g.reshape(a, [1])), []);
    return one(g, ELEMENTWISE, `${MICROSOFT}.FastGelu`, [a]);
  },
  cast: (g, a, dtype) =>
    a.dtype === dtype ? a : one(g, ELEMENTWISE, "Cast", [a], { to: ONNX_DTYPE[dtype] }),
  where: (g, condition, a, b) => {
    const [x, y] = operandsOf(g, "Where", a, b);
    if (x.dtype === "bool") { // No device chooses bools.
      return g.or(g.and(condition, x), g.and(g.not(condition), y));
    }
    return one(g, ELEMENTWISE, "Where", [condition, x, y]);
  },
};
