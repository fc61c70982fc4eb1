/**
 * Layers and losses for graphs, with PyTorch's names and defaults: linear, convolution, embedding,
 * norms, cross-entropy and initializers.
 *
 * @module
 */

import { assertInput, checkPositive, refusal } from "../errors.ts";
import { elementCount, type Ints, sameShape } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import { type Initializer, type LayerGraph, parameterName } from "./layer.ts";

const ZERO: Initializer = { kind: "constant", value: 0 };

/** Options of Xavier initialization. */
export interface XavierOptions {
  /** Factor of the bounds. Default 1; 5/3 before a tanh, √2 before a ReLU. */
  readonly gain?: number;
}

/** Options of Kaiming initialization. */
export interface KaimingOptions {
  /** Factor of the bounds. Default √2, as before a ReLU; 1 if no activation follows. */
  readonly gain?: number;
  /** Preserves the variance of activations (`in`, the default) or of gradients (`out`). */
  readonly fan?: "in" | "out";
}

/**
 * Returns the fan-in and fan-out of a weight [out, in, ...kernel], PyTorch's layout.
 *
 * @throws {RangeError} when the shape has fewer than two sizes, or a size is not positive.
 */
function fans(shape: Ints): { readonly in: number; readonly out: number } {
  const [outputs, inputs, ...kernel] = shape;
  if (outputs === undefined || inputs === undefined || !(elementCount(shape) > 0)) {
    throw refusal("initialise a weight", "its shape must be [out, in, ...kernel]", `[${shape}]`);
  }
  return { in: inputs * elementCount(kernel), out: outputs * elementCount(kernel) };
}

const normal = (deviation: number): Initializer => ({ kind: "normal", deviation });

/** Uniform initializer around 0 with a standard deviation. */
const uniform = (deviation: number): Initializer => {
  const high = Math.sqrt(3) * deviation;
  return { kind: "uniform", low: -high, high };
};

function xavierDeviation(shape: Ints, { gain = 1 }: XavierOptions): number {
  const { in: inputs, out: outputs } = fans(shape);
  return gain * Math.sqrt(2 / (inputs + outputs));
}

const kaimingDeviation = (shape: Ints, { gain = Math.SQRT2, fan = "in" }: KaimingOptions): number =>
  gain / Math.sqrt(fans(shape)[fan]);

/**
 * Uniform within ±gain·√(6 ÷ (in + out)).
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when the shape is not that of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { xavierUniform } from "@troupe/troupe/kernels";
 *
 * const { low, high } = xavierUniform([8, 16]) as { low: number; high: number };
 * assert.ok(Math.abs(high - 0.5) < 1e-12 && low === -high);
 * ```
 */
export const xavierUniform = (shape: Ints, options: XavierOptions = {}): Initializer =>
  uniform(xavierDeviation(shape, options));

/**
 * Normal with deviation gain·√(2 ÷ (in + out)).
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when the shape is not that of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { xavierNormal } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(xavierNormal([2, 6]), { kind: "normal", deviation: 0.5 });
 * ```
 */
export const xavierNormal = (shape: Ints, options: XavierOptions = {}): Initializer =>
  normal(xavierDeviation(shape, options));

/**
 * Uniform within ±gain·√(3 ÷ fan).
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when the shape is not that of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { kaimingUniform } from "@troupe/troupe/kernels";
 *
 * const { high } = kaimingUniform([4, 6, 3, 3], { gain: 1 }) as { high: number };
 * assert.ok(Math.abs(high - Math.sqrt(3 / 54)) < 1e-12);
 * ```
 */
export const kaimingUniform = (shape: Ints, options: KaimingOptions = {}): Initializer =>
  uniform(kaimingDeviation(shape, options));

/**
 * Normal with deviation gain ÷ √fan.
 *
 * @param shape of the weight, [out, in, ...kernel].
 * @throws {RangeError} when the shape is not that of a weight.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { kaimingNormal } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(kaimingNormal([3, 16], { gain: 1 }), { kind: "normal", deviation: 0.25 });
 * assert.throws(() => kaimingNormal([3]), /must be \[out, in, ...kernel\], received \[3\]/);
 * ```
 */
export const kaimingNormal = (shape: Ints, options: KaimingOptions = {}): Initializer =>
  normal(kaimingDeviation(shape, options));

/**
 * PyTorch's default for weights and biases of linear layers and convolutions: uniform within ±1/√in.
 *
 * @param shape of the weight, [out, in, ...kernel].
 */
const torchDefault = (shape: Ints): Initializer =>
  kaimingUniform(shape, { gain: 1 / Math.sqrt(3) });

/** Options of {@linkcode convolution}; `outputs` are channels. A number applies to every axis. */
export interface ConvolutionOptions extends LinearOptions {
  /** The size of a window. */
  readonly kernel: number | readonly number[];
  /** Steps from one window to the next. Default 1. */
  readonly stride?: number | readonly number[];
  /** Zeros before and after each axis. Default 0. */
  readonly padding?: number | readonly number[];
  /** Steps from one element of a window to the next. Default 1. */
  readonly dilation?: number | readonly number[];
  /** Groups of channels, convolved separately. Default 1. */
  readonly groups?: number;
}

/**
 * Convolution of x [samples, channels, ...sizes], over one spatial axis or two: [samples, outputs,
 * ...counts]. Parameters are `weight` [outputs, channels ÷ groups, ...kernel] and `bias` [outputs].
 *
 * @throws {RangeError} when sizes do not fit.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { convolution, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 3, 28, 28]);
 * const y = convolution(g, x, { name: "conv", outputs: 8, kernel: 3, stride: 2, padding: 1 });
 * assert.deepEqual(y.shape, [2, 8, 14, 14]);
 * assert.deepEqual(g.parameters.map(({ spec: { name, shape } }) => [name, shape]), [
 *   ["conv.weight", [8, 3, 3, 3]],
 *   ["conv.bias", [8]],
 * ]);
 * ```
 */
export function convolution(
  g: LayerGraph,
  x: Value,
  { kernel, stride = 1, padding = 0, dilation = 1, groups = 1, ...parameters }: ConvolutionOptions,
): Value {
  const { outputs } = parameters, sizes = x.shape.slice(2);
  const isKernel = typeof kernel === "number" || Array.isArray(kernel);
  assertInput(isKernel, "convolve", "kernel must be a number, or a list", kernel, TypeError);
  const window = typeof kernel === "number" ? sizes.map(() => kernel) : kernel;
  const shape = [outputs, x.shape[1]! / groups, ...window];
  return g.conv(x, ...weightAndBias(g, parameters, shape), {
    groups,
    strides: stride,
    pads: typeof padding === "number" ? padding : [...padding, ...padding],
    dilations: dilation,
  });
}

/** Options of {@linkcode embedding}. */
export interface EmbeddingOptions {
  /** Prefix of the name of the parameter, before a dot. Default: none. */
  readonly name?: string | undefined;
  /** Number of vectors in the table. */
  readonly rows: number;
  /** Length of a vector. */
  readonly width: number;
  /** Initial values of the table. Default: normal with deviation 1. */
  readonly initializer?: Initializer;
}

/**
 * Looks up the vectors of ids: int32 [...] gives [..., width]; a negative id counts from the end of
 * the table. The parameter is `weight` [rows, width].
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { embedding, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), ids = g.batch("ids", [2, 5], "i32");
 * assert.deepEqual(embedding(g, ids, { name: "wte", rows: 100, width: 8 }).shape, [2, 5, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["wte.weight"]);
 * ```
 */
export function embedding(
  g: LayerGraph,
  ids: Value,
  { name, rows, width, initializer = { kind: "normal", deviation: 1 } }: EmbeddingOptions,
): Value {
  checkPositive("look up vectors", { rows, width });
  return g.gather(g.parameter(parameterName(name, "weight"), [rows, width], initializer), ids);
}

/** Options of {@linkcode linear}. */
export interface LinearOptions {
  /** Prefix of the names of the parameters, before a dot. Default: none. */
  readonly name?: string | undefined;
  /** Width of the result, or its channels. */
  readonly outputs: number;
  /** Adds a bias. Default true. */
  readonly bias?: boolean;
  /**
   * Initial values of the weight. Default, as for the bias: uniform within ±1/√(inputs of an
   * output).
   */
  readonly initializer?: Initializer;
}

/**
 * x·Wᵀ + b over the last axis: x [..., inputs] gives [..., outputs]. Parameters are `weight`
 * [outputs, inputs] and `bias` [outputs].
 *
 * @throws {RangeError} when x has no axis.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { LayerGraph, linear } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph();
 * const y = linear(g, g.input("x", [2, 5, 8]), { name: "fc", outputs: 3 });
 * assert.deepEqual(y.shape, [2, 5, 3]);
 * assert.deepEqual(g.parameters.map(({ spec: { name, shape } }) => [name, shape]), [
 *   ["fc.weight", [3, 8]],
 *   ["fc.bias", [3]],
 * ]);
 * ```
 */
export function linear(g: LayerGraph, x: Value, options: LinearOptions): Value {
  const { outputs } = options, [inputs, outer] = [x.shape.at(-1), x.shape.slice(0, -1)];
  assertInput(x.shape.length > 0, "apply a linear map", "x must be [..., inputs]", "[]");
  const [weight, bias] = weightAndBias(g, options, [outputs, inputs!]);
  const rows = g.reshape(x, [elementCount(outer), inputs!]);
  return g.reshape(g.gemm(rows, weight, bias, { transB: true }), [...outer, outputs]);
}

/** Declares the parameters `weight` and, unless `bias` is false, `bias`. */
function weightAndBias(
  g: LayerGraph,
  { name, outputs, bias = true, initializer }: LinearOptions,
  shape: Ints,
): [weight: Value, bias: Value | undefined] {
  checkPositive("declare a weight", { outputs });
  const own = torchDefault(shape);
  const weight = g.parameter(parameterName(name, "weight"), shape, initializer ?? own);
  return [weight, bias ? g.parameter(parameterName(name, "bias"), [outputs], own) : undefined];
}

/** Options of {@linkcode crossEntropy}. */
export interface CrossEntropyOptions {
  /**
   * Share of each target that is spread evenly over all classes, from 0 to 1, as `label_smoothing` in
   * PyTorch (Szegedy et al. 2016). Default 0.
   */
  readonly smoothing?: number;
}

/**
 * Softmax cross-entropy, summed over the predictions of each sample: logits [samples, ..., classes]
 * and targets int32 [samples, ...] give [samples]. A target of −1 has no loss and no gradient: with
 * `predictions: (batch) => countTargets(batch, field)` the mean is over the others.
 *
 * @throws {RangeError} when the shapes do not match, or smoothing is not from 0 to 1.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { crossEntropy, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), logits = g.input("x", [2, 5, 10]);
 * const targets = g.batch("targets", [2, 5], "i32");
 * assert.deepEqual(crossEntropy(g, logits, targets, { smoothing: 0.1 }).shape, [2]);
 * assert.throws(() => crossEntropy(g, logits, targets, { smoothing: 2 }), /from 0 to 1, received 2/);
 * ```
 */
export function crossEntropy(
  g: LayerGraph,
  logits: Value,
  targets: Value,
  { smoothing = 0 }: CrossEntropyOptions = {},
): Value {
  const isShare = smoothing >= 0 && smoothing <= 1;
  assertInput(isShare, "take cross-entropy", "smoothing must be from 0 to 1", smoothing);
  const fits = logits.shape.length >= 2 && sameShape(logits.shape.slice(0, -1), targets.shape);
  const must = "logits must be [samples, ..., classes] and targets [samples, ...]";
  assertInput(fits, "take cross-entropy", must, `[${logits.shape}] and [${targets.shape}]`);
  const rows = elementCount(targets.shape), classes = logits.shape.at(-1)!;
  const flat = g.reshape(logits, [rows, classes]), wanted = g.reshape(targets, [rows]);
  const hard = g.crossEntropy(flat, wanted);
  const losses = smoothing === 0
    ? hard
    : g.add(hard, g.mul(excess(g, flat, wanted), g.scalar(smoothing)));
  return samplesSum(g, losses, targets.shape);
}

/**
 * Mean squared difference over the elements of each sample: two inputs of [samples, ...] give
 * [samples]. With `predictions` the number of samples, a step's loss is PyTorch's `mse_loss`.
 *
 * @throws {RangeError} when the shapes differ or have no axis.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { LayerGraph, meanSquaredError } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), wanted = g.batch("wanted", [4, 3]);
 * assert.deepEqual(meanSquaredError(g, g.input("x", [4, 3]), wanted).shape, [4]);
 * assert.throws(() => meanSquaredError(g, g.input("y", [4]), wanted), /received \[4\] and \[4,3\]/);
 * ```
 */
export function meanSquaredError(g: LayerGraph, prediction: Value, target: Value): Value {
  const { shape } = prediction;
  const fits = shape.length > 0 && sameShape(shape, target.shape);
  const received = `[${shape}] and [${target.shape}]`, what = "take the mean squared error";
  assertInput(fits, what, "both must have one shape, [samples, ...]", received);
  const difference = g.sub(prediction, target);
  const size = elementCount(shape) / shape[0]!;
  return g.mul(samplesSum(g, g.mul(difference, difference), shape), g.scalar(1 / size));
}

/** Difference of each target's logit and the mean of its row; 0 where the target is −1. */
function excess(g: LayerGraph, logits: Value, targets: Value): Value {
  const [rows, classes] = logits.shape as [number, number];
  const int = (value: number) => g.constant(Int32Array.of(value), [], "i32");
  const isPredicted = g.greater(targets, int(-1));
  const evenly = g.expand(g.scalar(-1 / classes), [rows, classes]);
  const column = g.where(isPredicted, targets, int(0));
  const weights = g.scatterAddColumns(evenly, column, g.expand(g.scalar(1), [rows, 1]));
  const excess = g.sum(g.mul(logits, weights), [1]);
  return g.where(isPredicted, excess, g.scalar(0));
}

/** Returns the sum of the values of each sample. */
const samplesSum = (g: LayerGraph, values: Value, shape: Ints): Value =>
  g.sum(g.reshape(values, [shape[0]!, elementCount(shape) / shape[0]!]), [1]);

/** Options of {@linkcode layerNorm} and {@linkcode rmsNorm}. */
export interface NormOptions {
  /** Prefix of the names of the parameters, before a dot. Default: none. */
  readonly name?: string | undefined;
  /** Added to the radicand. Default 1e-5. */
  readonly epsilon?: number;
}

/** Options of {@linkcode groupNorm}. */
export interface GroupNormOptions extends NormOptions {
  /** Groups of channels; must divide their number. */
  readonly groups: number;
}

const ONE: Initializer = { kind: "constant", value: 1 };

/** Declares the parameters `weight` and `bias`. */
const affine = (g: LayerGraph, name: string | undefined, size: number): [Value, Value] => [
  g.parameter(parameterName(name, "weight"), [size], ONE),
  g.parameter(parameterName(name, "bias"), [size], ZERO),
];

/**
 * LayerNorm (Ba, Kiros, Hinton 2016) over the last axis, with the parameters `weight` and `bias`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { layerNorm, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 5, 8]);
 * assert.deepEqual(layerNorm(g, x, { name: "ln" }).shape, [2, 5, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["ln.weight", "ln.bias"]);
 * ```
 */
export function layerNorm(g: LayerGraph, x: Value, { name, epsilon }: NormOptions = {}): Value {
  return g.layerNorm(x, ...affine(g, name, x.shape.at(-1)!), epsilon);
}

/**
 * x ÷ √(mean of x² + ε) · `weight` over the last axis (Zhang, Sennrich 2019).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { LayerGraph, rmsNorm } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 5, 8]);
 * assert.deepEqual(rmsNorm(g, x, { name: "norm", epsilon: 1e-6 }).shape, [2, 5, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["norm.weight"]);
 * ```
 */
export function rmsNorm(g: LayerGraph, x: Value, { name, epsilon }: NormOptions = {}): Value {
  const weight = g.parameter(parameterName(name, "weight"), [x.shape.at(-1)!], ONE);
  return g.rmsNorm(x, weight, epsilon);
}

/**
 * GroupNorm (Wu, He 2018): normalizes x [samples, channels, ...] within each group of channels of a
 * sample, then scales and shifts each channel by the parameters `weight` and `bias`.
 *
 * @throws {RangeError} when the groups do not divide the channels.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { groupNorm, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 6, 4, 4]); assert.deepEqual(groupNorm(g, x, {
 * groups: 3 }).shape, [2, 6, 4, 4]); assert.throws(() => groupNorm(g, x, { name: "other", groups: 4
 * }), /divide the channels, 6, received 4/);
 * ```
 */
export function groupNorm(g: LayerGraph, x: Value, options: GroupNormOptions): Value {
  const { name, groups, epsilon } = options;
  return g.groupNorm(x, groups, ...affine(g, name, x.shape[1]!), epsilon);
}
