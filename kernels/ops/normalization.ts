/**
 * Operations that normalize along axes: softmax, cross-entropy and norms.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import { elementCount, positiveAxis, sameShape } from "../graph/shapes.ts";
import { numberOf, type Settings, TROUPE, type Value } from "../graph/value.ts";
import { arithmetic, type Writer } from "../onnx/rewrite.ts";
import { floatOf } from "../onnx/signature.ts";
import { type NdArray, ndArray } from "./array.ts";
import type { Builder } from "./builder.ts";
import {
  axisOf,
  checkMade,
  isSet,
  like,
  type Methods,
  mustBe,
  nodes,
  one,
  type Op,
  operand,
  operands,
  type Ops,
  type Read,
  slope,
} from "./op.ts";
import { type Groups, groupsOf, largest, sum, sumOfSquares } from "./reductions.ts";

/** Computes ln softmax over an axis, in f64. */
function logSoftmax(x: NdArray, axis: number): Float64Array {
  const groups = groupsOf(x.shape, [axis]);
  const most = largest(groups, x.values);
  const shifted = new Float64Array(x.values).map((v, i) => v - most[groups.of[i]!]!);
  const total = sum(groups, shifted.map(Math.exp));
  return shifted.map((v, i) => v - Math.log(total[groups.of[i]!]!));
}

/** Reads a softmax over one axis; in opsets before 13, over all axes from one to the last. */
const readSoftmax = (method: "softmax" | "logSoftmax"): Read => (call) => {
  const { g } = call, x = operand(call, 0), { shape } = x, axis = axisOf(call, shape, -1);
  if (!isSet(call, "flattened") || axis === shape.length - 1) return g[method](x, axis);
  const flat = [elementCount(shape.slice(0, axis)), elementCount(shape.slice(axis))];
  return g.reshape(g[method](g.reshape(x, flat), 1), shape);
};

const SOFTMAX: Ops = {
  Softmax: {
    shape: like(0),
    gradient: slope((g, dy, _, y, node) => {
      const axis = node.attributes.axis as number;
      if (axis === y.shape.length - 1) return one(g, SOFTMAX, `${TROUPE}.SoftmaxGrad`, [dy, y]);
      const weighted = g.mul(y, dy);
      return g.sub(weighted, g.mul(y, g.sum(weighted, [axis], true)));
    }),
    reference: ([x], node) => ndArray(x, logSoftmax(x, axisOf(node, x.shape, -1)).map(Math.exp)),
    read: readSoftmax("softmax"),
  },
  LogSoftmax: {
    shape: like(0),
    gradient: slope((g, dy, _, y, node) =>
      g.sub(dy, g.mul(g.exp(y), g.sum(dy, [node.attributes.axis as number], true)))
    ),
    reference: ([x], node) => ndArray(x, logSoftmax(x, axisOf(node, x.shape, -1))),
    read: readSoftmax("logSoftmax"),
  },
  [`${TROUPE}.SoftmaxGrad`]: {
    shape: like(0),
    // dx = y·dy − y·Σ y·dy.
    lower: (write, { input: [dy, y], output: [dx] }) => {
      const { sub, mul } = arithmetic(write), weighted = mul(y!, dy!);
      const last = write.constant("i64", [write.typeOf(y!).shape.length - 1]);
      sub(weighted, mul(y!, write.node("ReduceSum", [weighted, last], { keepdims: 1 })), dx);
    },
  },
};

/** Largest number of elements in an intermediate value of a cross-entropy. */
const CHUNK_ELEMENTS = 2 ** 20;
/** Largest number of parts of the rows. */
const CHUNKS_MAX = 16;

/**
 * Writes ln softmax(logits)[class] of each row. Large logits are computed in parts, to bound the
 * memory of intermediate values.
 */
function logProbabilities(write: Writer, logits: string, classes: string): string {
  const { shape } = write.typeOf(logits), [rows = 0] = shape;
  const parts = Math.min(rows, CHUNKS_MAX, Math.ceil(elementCount(shape) / CHUNK_ELEMENTS));
  const of = (some: string, own: string) =>
    write.node("GatherElements", [write.node("LogSoftmax", [some], { axis: 1 }), own], { axis: 1 });
  if (parts <= 1) return of(logits, classes);
  const found = Array.from({ length: parts }, (_, i) => {
    const from = Math.floor(i * rows / parts), to = Math.floor((i + 1) * rows / parts);
    const axis = write.constant("i64", [0]);
    const ends = [from, to].map((end) => write.constant("i64", [end]));
    const some = write.node("Slice", [logits, ...ends, axis]);
    // Some devices cannot slice whole numbers.
    const places = Array.from({ length: to - from }, (_, row) => from + row);
    return of(some, write.node("Gather", [classes, write.constant("i32", places)], { axis: 0 }));
  });
  return write.node("Concat", found, { axis: 0 });
}

const crossEntropy: Op = {
  shape: ({ inputs: [logits, targets] }) => [{ dtype: logits!.dtype, shape: targets!.shape }],
  // d logits = (softmax − onehot(target))·dy, row by row; 0 for rows whose target is −1. The
  // difference may overwrite the logits: see [Note: activations that are overwritten].
  gradient: (g, node, [dy]) => {
    const [logits, targets] = node.inputs as [Value, Value], column = [targets.shape[0]!, 1];
    const int = (value: number) => g.constant(Int32Array.of(value), [], "i32");
    const isPredicted = g.greater(targets, int(-1));
    const classes = g.where(isPredicted, targets, int(0));
    const probabilities = g.softmax(logits), minusOne = g.expand(g.scalar(-1), column);
    const difference = g.scatterAddColumns(probabilities, classes, minusOne);
    return [g.mul(difference, g.reshape(g.where(isPredicted, dy!, g.scalar(0)), column))];
  },
  // −ln softmax(logits)[target] of each row, and 0 where the target is −1.
  lower: (write, { input, output: [losses] }) => {
    const [logits, targets] = input as [string, string];
    const [rows = 0] = write.typeOf(logits).shape;
    const none = write.constant("i32", [0], []), zero = write.constant("f32", [0], []);
    const isPredicted = write.node("Greater", [targets, write.constant("i32", [-1], [])]);
    const safe = write.node("Where", [isPredicted, targets, none]);
    const { reshape } = arithmetic(write);
    const all = reshape(logProbabilities(write, logits, reshape(safe, [rows, 1])), [rows]);
    write.node("Where", [isPredicted, write.node("Neg", [all]), zero], {}, losses);
  },
};

/** Writes x̂ = (x − μ)/σ. */
export function normalised(write: Writer, [x, mean, inverseDeviation]: readonly string[]): string {
  const { sub, mul } = arithmetic(write);
  return mul(sub(x!, mean!), inverseDeviation!);
}

/** 1 ÷ √(mean square + ε) of each group. */
function inverseRoots(groups: Groups, numbers: ArrayLike<number>, node: Settings): Float64Array {
  const epsilon = numberOf(node, "epsilon", 1e-5);
  return sumOfSquares(groups, numbers).map((sum) => 1 / Math.sqrt(sum / groups.size + epsilon));
}

const layerNorm: Op = {
  shape: (known) => {
    const [x] = known.inputs, axis = axisOf(known, x.shape, -1);
    const shape = x.shape.map((size, i) => i < axis ? size : 1);
    return [x, { dtype: "f32", shape }, { dtype: "f32", shape }];
  },
  // Two operations, for x and for weight and bias, because I needs the first and W the second.
  gradient: (g, node, [dy], needed) => {
    const [x, weight] = node.inputs as [Value, Value];
    const [, mean, inverseDeviation] = node.outputs as [Value, Value, Value];
    const inputs = [dy!, x, mean, inverseDeviation];
    const [dWeight, dBias] = needed[1] || needed[2]
      ? nodes(g, NORMS, `${TROUPE}.LayerNormWeightGrad`, inputs, {}, 2)
      : [];
    return [
      () => one(g, NORMS, `${TROUPE}.LayerNormInputGrad`, [...inputs, weight]),
      dWeight,
      dBias,
    ];
  },
  reference: ([x, scale, bias], node) => {
    const groups = groupsOf(x.shape, [...x.shape.keys()].slice(axisOf(node, x.shape, -1)));
    const mean = sum(groups, x.values).map((total) => total / groups.size);
    const centred = new Float64Array(x.values).map((v, i) => v - mean[groups.of[i]!]!);
    const inverse = inverseRoots(groups, centred, node);
    const y = centred.map((v, i) => {
      const at = i % groups.size; // Reduced axes are the last ones.
      return v * inverse[groups.of[i]!]! * scale!.values[at]! + (bias?.values[at] ?? 0);
    });
    const statistics = { dtype: "f32", shape: groups.shape } as const;
    return [ndArray(x, y), ndArray(statistics, mean), ndArray(statistics, inverse)];
  },
  read: (call) => {
    const { g, inputs: [, , bias] } = call, [x, weight] = operands(call, 2);
    const axis = axisOf(call, x.shape, -1);
    const width = elementCount(x.shape.slice(axis)), epsilon = numberOf(call, "epsilon", 1e-5);
    mustBe(call, "stash_type", 1, [1]);
    checkMade("what is normalised", width);
    const flat = (value: Value) => g.reshape(value, [width]);
    const rows = g.reshape(x, [...x.shape.slice(0, axis), width]);
    const shift = () => bias ? flat(bias) : g.constant(new Float32Array(width), [width]);
    return g.reshape(g.layerNorm(rows, flat(weight), shift(), epsilon), x.shape);
  },
};

const rmsNorm: Op = {
  shape: like(0),
  // With x̂ = x/r, r² = mean x² + ε and f = dy·w: dx = (f − x̂·mean(f·x̂))/r, dw = Σ dy·x̂. x̂ is
  // computed twice, because I needs one of them and W the other, and storing it takes more time.
  gradient: (g, node, [dy]) => {
    const [x, weight] = node.inputs as [Value, Value], last = [x.shape.length - 1];
    const epsilon = g.scalar(numberOf(node, "epsilon", 1e-5));
    const size = g.scalar(1 / weight.shape[0]!), mean = (sum: Value) => g.mul(sum, size);
    const inverse = () => g.reciprocal(g.sqrt(g.add(mean(g.sumOfSquares(x, last, true)), epsilon)));
    const dx = () => {
      const scale = inverse(), normal = g.mul(x, scale), f = g.mul(dy!, weight);
      return g.mul(g.sub(f, g.mul(normal, mean(g.sum(g.mul(f, normal), last, true)))), scale);
    };
    return [dx, () => g.mul(dy!, g.mul(x, inverse()))];
  },
  reference: ([x, scale], node) => {
    const groups = groupsOf(x.shape, [x.shape.length - 1]);
    const inverse = inverseRoots(groups, x.values, node);
    const y = new Float64Array(x.values).map((v, i) =>
      v * inverse[groups.of[i]!]! * scale!.values[i % groups.size]!
    );
    return ndArray(x, y);
  },
  lower: (write, node) => {
    const [x, weight] = node.input as [string, string];
    const { add, mul, div, scalar } = arithmetic(write), last = write.constant("i64", [-1]);
    const square = write.node("ReduceMean", [mul(x, x), last], { keepdims: 1 });
    const root = write.node("Sqrt", [add(square, scalar(floatOf(node, "epsilon", 1e-5)))]);
    mul(div(x, root), weight, node.output[0]);
  },
};

const NORMS: Ops = {
  LayerNormalization: layerNorm,
  [`${TROUPE}.LayerNormInputGrad`]: {
    shape: like(0),
    // With f = dy·w: dx = (f − mean f − x̂·mean(f·x̂))/σ.
    lower: (write, { input, output: [dx] }) => {
      const [dy, , , inverseDeviation, weight] = input, { sub, mul } = arithmetic(write);
      const normal = normalised(write, input.slice(1)), f = mul(dy!, weight!);
      const last = write.constant("i64", [write.typeOf(dy!).shape.length - 1]);
      const mean = (of: string) => write.node("ReduceMean", [of, last], { keepdims: 1 });
      const centred = sub(f, mean(f));
      mul(sub(centred, mul(normal, mean(mul(f, normal)))), inverseDeviation!, dx);
    },
  },
  [`${TROUPE}.LayerNormWeightGrad`]: {
    // One number for each element of the last axis.
    shape: ({ inputs: [dy] }) => {
      const column = { dtype: dy!.dtype, shape: dy!.shape.slice(-1) };
      return [column, column];
    },
    // d weight = Σ dy·x̂, d bias = Σ dy, over all rows.
    lower: (write, { input, output: [dWeight, dBias] }) => {
      const [dy] = input, { mul } = arithmetic(write), { shape } = write.typeOf(dy!);
      const rows = write.constant("i64", shape.slice(1).map((_, axis) => axis));
      const sum = (of: string, output: string) =>
        write.node("ReduceSum", [of, rows], { keepdims: 0 }, output);
      if (dWeight) sum(mul(dy!, normalised(write, input.slice(1))), dWeight);
      if (dBias) sum(dy!, dBias);
    },
  },
  SimplifiedLayerNormalization: rmsNorm,
  // With the statistics of the file, which are not trained, as in inference.
  BatchNormalization: {
    read: (call) => {
      if (isSet(call, "training_mode") || call.outputs.some((name, i) => i > 0 && name)) {
        const must = "its statistics must be those of the file, as exported for evaluation";
        throw new TypeError(`${must}, received statistics of each batch`);
      }
      const [x, weight, bias] = operands(call, 3);
      const mean = operand(call, 3), variance = operand(call, 4);
      const epsilon = numberOf(call, "epsilon", 1e-5);
      return call.g.batchNorm(x, weight, bias, { mean, variance }, epsilon);
    },
  },
  InstanceNormalization: {
    read: (call) => {
      checkMade("an image", elementCount(operand(call, 0).shape.slice(2)));
      return call.g.instanceNorm(...operands(call, 3), numberOf(call, "epsilon", 1e-5));
    },
  },
  GroupNormalization: {
    read: (call) => {
      const { g } = call, x = operand(call, 0), channels = x.shape[1]!;
      checkMade("a sample", elementCount(x.shape.slice(1)));
      const groups = numberOf(call, "num_groups", 1), ofGroups = isSet(call, "scale_of_groups");
      const perChannel = (place: number) => {
        const value = operand(call, place);
        if (!ofGroups) return value;
        const columns = g.expand(g.reshape(value, [groups, 1]), [groups, channels / groups]);
        return g.reshape(columns, [channels]);
      };
      const weight = perChannel(1), bias = perChannel(2);
      return g.groupNorm(x, groups, weight, bias, numberOf(call, "epsilon", 1e-5));
    },
  },
};

/** Operations that normalize along axes. */
export const NORMALIZATION: Ops = {
  ...SOFTMAX,
  ...NORMS,
  [`${TROUPE}.CrossEntropy`]: crossEntropy,
};

/** Normalizes each row to mean 0 and deviation 1. */
function normal(g: Builder, rows: Value, epsilon: number): Value {
  const size = rows.shape[1]!;
  const filled = (value: number) => g.constant(new Float32Array(size).fill(value), [size]);
  return g.layerNorm(rows, filled(1), filled(0), epsilon);
}

/** Reshapes numbers of channels, so that they broadcast to `x`. */
function perChannel(g: Builder, numbers: Value, { shape: [, channels, ...sizes] }: Value): Value {
  const isOfChannels = sameShape(numbers.shape, [channels!]), must = `numbers of channels must be`;
  assertInput(isOfChannels, "normalize", `${must} [${channels}]`, `[${numbers.shape}]`);
  return g.reshape(numbers, [channels!, ...sizes.map(() => 1)]);
}

/** Refuses a weight or bias that is not of the last axis. */
function checkLast(x: Value, ...numbers: readonly Value[]): void {
  const last = x.shape.slice(-1), isOfLast = numbers.every(({ shape }) => sameShape(shape, last));
  const received = `[${x.shape}] and ${numbers.map(({ shape }) => `[${shape}]`).join(", ")}`;
  const must = "x must have an axis, and weight and bias the size of its last one";
  assertInput(last.length === 1 && isOfLast, "normalize", must, received);
}

const affine = (g: Builder, x: Value, weight: Value, bias: Value): Value =>
  g.add(g.mul(x, perChannel(g, weight, x)), perChannel(g, bias, x));

const softmaxOf = (op: string) => (g: Builder, a: Value, axis = -1) =>
  one(g, SOFTMAX, op, [a], { axis: positiveAxis(axis, a.shape.length) });

/** Methods that add normalizations. */
export const NORMALIZATION_METHODS: Methods = {
  softmax: softmaxOf("Softmax"),
  logSoftmax: softmaxOf("LogSoftmax"),
  crossEntropy: (g, logits, targets) => {
    const holds = logits.shape.length === 2 && sameShape(targets.shape, logits.shape.slice(0, 1));
    const received = `[${logits.shape}] and [${targets.shape}]`, what = "take cross-entropy";
    assertInput(holds, what, "logits must be [n, classes] and targets [n]", received);
    return one(g, NORMALIZATION, `${TROUPE}.CrossEntropy`, [logits, g.cast(targets, "i32")]);
  },
  layerNorm: (g, x, weight, bias, epsilon = 1e-5): Value => {
    checkLast(x, weight, bias);
    if (x.shape.length === 1) {
      const row = g.reshape(x, [1, ...x.shape]);
      return g.reshape(g.layerNorm(row, weight, bias, epsilon), x.shape);
    }
    const attributes = { axis: -1, epsilon: { float: epsilon } };
    return nodes(g, NORMS, "LayerNormalization", [x, weight, bias], attributes, 3)[0]!;
  },
  rmsNorm: (g, x, weight, epsilon = 1e-5) => {
    checkLast(x, weight);
    return one(g, NORMS, "SimplifiedLayerNormalization", [x, weight], {
      axis: -1,
      epsilon: { float: epsilon },
    });
  },
  groupNorm: (g, x, groups, weight, bias, epsilon = 1e-5) => {
    const [n = 0, channels = 0, ...sizes] = x.shape;
    const must = `their number must divide the channels, ${channels}`;
    assertInput(groups >= 1 && channels % groups === 0, "normalize groups", must, groups);
    const rows = g.reshape(x, [n * groups, elementCount([channels, ...sizes]) / groups]);
    return affine(g, g.reshape(normal(g, rows, epsilon), x.shape), weight, bias);
  },
  instanceNorm: (g, x, weight, bias, epsilon = 1e-5) =>
    g.groupNorm(x, x.shape[1]!, weight, bias, epsilon),
  batchNorm: (g, x, weight, bias, statistics, epsilon = 1e-5) => {
    if (statistics) {
      const { mean, variance } = statistics;
      const deviation = g.sqrt(g.add(variance, g.scalar(epsilon)));
      const centred = g.sub(x, perChannel(g, mean, x));
      return affine(g, g.div(centred, perChannel(g, deviation, x)), weight, bias);
    }
    // With channels first, each is a row.
    const turn = [1, 0, ...x.shape.slice(2).map((_, axis) => axis + 2)];
    const turned = g.transpose(x, turn), [channels = 0, ...others] = turned.shape;
    const rows = g.reshape(turned, [channels, elementCount(others)]);
    const centred = g.reshape(normal(g, rows, epsilon), turned.shape);
    return affine(g, g.transpose(centred, turn), weight, bias);
  },
};
