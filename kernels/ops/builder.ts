/**
 * Methods of graphs that add operations, with their options and arguments. The files of the
 * families of operations implement them.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import type { Ints, PerAxis, WindowOptions } from "../graph/shapes.ts";
import { type Binary, NodeGraph, type Operand, type Unary, type Value } from "../graph/value.ts";

/** Adds a reduction over axes (all by default), which remain with size 1 if `keep` is true. */
export type Reduction = (a: Value, axes?: Ints, keep?: boolean) => Value;

/** Options of {@linkcode Graph.matmul} and {@linkcode Graph.gemm}. */
export interface MatmulOptions {
  /** Use the transpose of the last two axes of `a`. */
  transA?: boolean;
  /** Use the transpose of the last two axes of `b`. */
  transB?: boolean;
  /** Factor of the product. */
  alpha?: number;
}

/** Options of {@linkcode Graph.gemm}. */
export interface GemmOptions extends MatmulOptions {
  /** Factor of `c`. */
  beta?: number;
}

/** Options of {@linkcode Graph.conv}. */
export interface ConvOptions extends WindowOptions {
  /** Number of groups of channels, which are convolved separately. Default 1. */
  readonly groups?: number;
}

/** Options of {@linkcode Graph.convTranspose}. */
export interface ConvTransposeOptions extends ConvOptions {
  /** Additional elements after the last window, fewer than strides. Default 0. */
  readonly outputPadding?: PerAxis;
}

/** Options of {@linkcode Graph.maxPool}. */
export interface PoolOptions extends WindowOptions {
  /** Adds windows at the end that fit only in part. Default false. */
  readonly ceilMode?: boolean;
}

/** Options of {@linkcode Graph.averagePool}. */
export interface AveragePoolOptions extends Omit<PoolOptions, "dilations"> {
  /** Includes the zeros of the padding in means. Default false, as in ONNX. */
  readonly countIncludePad?: boolean;
}

/** Options of {@linkcode Graph.resize}, with the names of ONNX's Resize. */
export interface InterpolationOptions {
  /** Nearest element, or linear interpolation between two. Default `nearest`. */
  readonly mode?: "nearest" | "linear";
  /** Position of an element of the result in the image. Default "half_pixel". */
  readonly coordinates?: "half_pixel" | "pytorch_half_pixel" | "align_corners" | "asymmetric";
  /** Rounding to the nearest element. Default "round_prefer_floor". */
  readonly nearest?: "round_prefer_floor" | "round_prefer_ceil" | "floor" | "ceil";
}

/** A graph with a method for each operation, as {@linkcode Graph} implements them. */
export class Builder extends NodeGraph {
  /** a + b */
  declare readonly add: Binary;
  /** a − b */
  declare readonly sub: Binary;
  /** a · b, element by element */
  declare readonly mul: Binary;
  /** a ÷ b; for whole numbers rounded towards 0. */
  declare readonly div: Binary;
  /** a^b */
  declare readonly pow: Binary;
  /** The remainder of a ÷ b: with the sign of b for whole numbers, of a for others. */
  declare readonly mod: Binary;
  /** The minimum of a and b; equal operands share the gradient. */
  declare readonly minimum: Binary;
  /** The maximum of a and b; equal operands share the gradient. */
  declare readonly maximum: Binary;
  /** a, limited to at least `low` and at most `high`, both constants. */
  declare readonly clip: (a: Value, low?: number, high?: number) => Value;
  /** −a */
  declare readonly neg: Unary;
  /** 1 ÷ a */
  declare readonly reciprocal: Unary;
  /** |a| */
  declare readonly abs: Unary;
  /** The sign of a: −1, 0 or 1. */
  declare readonly sign: Unary;
  /** a rounded down to a whole number. */
  declare readonly floor: Unary;
  /** a rounded up to a whole number. */
  declare readonly ceil: Unary;
  /** a rounded to the nearest whole number, ties to even. */
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
  /** arctan a */
  declare readonly atan: Unary;
  /** tanh a */
  declare readonly tanh: Unary;
  /** erf a */
  declare readonly erf: Unary;
  /** 1 ÷ (1 + e^−a) */
  declare readonly sigmoid: Unary;
  /** max(0, min(1, alpha·a + beta)) */
  declare readonly hardSigmoid: (a: Value, alpha?: number, beta?: number) => Value;
  /** max(a, 0) */
  declare readonly relu: Unary;
  /** a if positive, otherwise alpha·a. */
  declare readonly leakyRelu: (a: Value, alpha?: number) => Value;
  /** a if positive, otherwise slope·a; the slope broadcasts to a. */
  declare readonly prelu: (a: Value, slope: Operand) => Value;
  /** a if positive, otherwise alpha·(e^a − 1). */
  declare readonly elu: (a: Value, alpha?: number) => Value;
  /** gamma·elu(a) (Klambauer et al. 2017). */
  declare readonly selu: (a: Value, alpha?: number, gamma?: number) => Value;
  /** ln(1 + e^a) */
  declare readonly softplus: Unary;
  /** a ÷ (1 + |a|) */
  declare readonly softsign: Unary;
  /** a·sigmoid(a), also called Swish. */
  declare readonly silu: Unary;
  /** a·max(0, min(1, a/6 + 1/2)) */
  declare readonly hardSwish: Unary;
  /** a·tanh(softplus(a)) (Misra 2019). */
  declare readonly mish: Unary;
  /** GELU: GPT-2's tanh approximation by default, or exact with erf. */
  declare readonly gelu: (a: Value, approximate?: "tanh" | "none") => Value;
  /** Converts to another dtype. */
  declare readonly cast: (a: Value, dtype: DType) => Value;
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
  /** True if a is NaN, as bool. */
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
  declare readonly where: (condition: Value, a: Operand, b: Operand) => Value;
  /**
   * Returns the same elements in another shape, without a copy. One size may be -1: it is computed.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { Graph } from "@troupe/troupe/kernels";
   *
   * const g = new Graph(), x = g.input("x", [8, 3, 4]);
   * assert.deepEqual(g.reshape(x, [8, -1]).shape, [8, 12]);
   * assert.deepEqual(g.flatten(x).shape, [8, 12]);
   * ```
   */
  declare readonly reshape: (a: Value, shape: Ints) => Value;
  /** Merges the axes before `axis` (by default 1) into rows, and the others into columns. */
  declare readonly flatten: (a: Value, axis?: number) => Value;
  /**
   * Returns `a` without a gradient. A parameter that affects the loss only through such values,
   * also after a comparison or a rounding, is intentionally not trained, as if it were frozen.
   *
   * @example Rounds in the forward pass, with the gradient of the identity
   * ```ts
   * import assert from "node:assert/strict";
   * import { Graph } from "@troupe/troupe/kernels";
   *
   * const g = new Graph(), x = g.input("x", [4]);
   * const rounded = g.add(x, g.stopGradient(g.sub(g.round(x), x)));
   * assert.deepEqual(rounded.shape, [4]);
   * ```
   */
  declare readonly stopGradient: Unary;
  /** Permutes axes. */
  declare readonly transpose: (a: Value, permutation: Ints) => Value;
  /** Broadcasts to a shape: repeats axes of size one. */
  declare readonly expand: (a: Value, shape: Ints) => Value;
  /** Splits an axis into a number of equal parts, or into parts of given sizes. */
  declare readonly split: (a: Value, axis: number, parts: PerAxis) => Value[];
  /** Joins tensors along an axis. */
  declare readonly concat: (values: readonly Value[], axis: number) => Value;
  /**
   * ONNX's Slice: elements from `starts` to before `ends` in distances of `steps`, along `axes` (by
   * default the first ones). Negative numbers count from the end; numbers beyond an end are limited
   * to it.
   */
  declare readonly slice: (a: Value, starts: Ints, ends: Ints, axes?: Ints, steps?: Ints) => Value;
  /** Repeats the whole tensor along each axis. */
  declare readonly tile: (a: Value, repeats: Ints) => Value;
  /**
   * The lower or upper triangle of the last two axes, including the diagonal that is `diagonal`
   * places to the right of the main diagonal; 0 elsewhere.
   */
  declare readonly trilu: (a: Value, which: "lower" | "upper", diagonal?: number) => Value;
  /**
   * Rearranges [n, c, h, w] to [n, c/b², h·b, w·b]: channels become blocks of b × b places. The
   * channels of a block are consecutive in the mode "CRD", as in PyTorch's pixel shuffle, but not
   * in "DCR".
   */
  declare readonly depthToSpace: (a: Value, block: number, mode?: "CRD" | "DCR") => Value;
  /**
   * Reads entries of an axis (by default the first) by index; indices replace the axis in the
   * shape.
   */
  declare readonly gather: (table: Value, indices: Value, axis?: number) => Value;
  /** Reads an element for each index, which replaces the position along `axis`. */
  declare readonly gatherElements: (a: Value, indices: Value, axis: number) => Value;
  /**
   * Reads the entries at `indices` [...n, k], whose last axis contains positions on the first k
   * axes.
   */
  declare readonly gatherND: (a: Value, indices: Value) => Value;
  /** Writes or adds `updates` to `base`, at the places that {@linkcode Builder.gatherElements} reads. */
  declare readonly scatterElements: (
    base: Value,
    indices: Value,
    updates: Value,
    axis: number,
    reduction?: "none" | "add",
  ) => Value;
  /** Writes or adds `updates` to `base`, at the places that {@linkcode Builder.gatherND} reads. */
  declare readonly scatterND: (
    base: Value,
    indices: Value,
    updates: Value,
    reduction?: "none" | "add",
  ) => Value;
  /** Adds `updates` [n, ...] to the rows `indices` [n] of `base`. */
  declare readonly scatterAdd: (base: Value, indices: Value, updates: Value) => Value;
  /** Adds `updates` [n, 1] to the column `columns` [n] of each row of `base` [n, k]. */
  declare readonly scatterAddColumns: (base: Value, columns: Value, updates: Value) => Value;
  /** Adds an axis (by default the last) that is `on` at the index, and `off` elsewhere. */
  declare readonly oneHot: (
    indices: Value,
    size: number,
    options?: { axis?: number; on?: number; off?: number },
  ) => Value;
  /**
   * Batched matrix product of the last two axes; an operand with one axis is a row (left) or column
   * (right).
   */
  declare readonly matmul: (a: Value, b: Value, options?: MatmulOptions) => Value;
  /** Matrix product alpha·a·b + beta·c of two-dimensional tensors; c broadcasts (a bias). */
  declare readonly gemm: (a: Value, b: Value, c?: Value, options?: GemmOptions) => Value;
  /**
   * Sum of products by an equation with a letter for each axis: "ij,jk->ik" is the product of two
   * matrices. Axes that are not in the result are summed over. Without an arrow the result has the
   * axes that occur once, in alphabetical order.
   *
   * @throws {SyntaxError} when the equation does not fit the tensors.
   */
  declare readonly einsum: (equation: string, operands: readonly Value[]) => Value;
  /** Sum over axes, all by default; over none of them (`[]`) it is `a` itself. */
  declare readonly sum: Reduction;
  /** Mean over axes, all by default; over none of them (`[]`) it is `a` itself. */
  declare readonly mean: Reduction;
  /** Sum of squares over axes, all by default; over none of them (`[]`) it is a². */
  declare readonly sumOfSquares: Reduction;
  /** Maximum over axes, all by default; equal maxima share the gradient. */
  declare readonly max: Reduction;
  /** Minimum over axes, all by default; equal minima share the gradient. */
  declare readonly min: Reduction;
  /** Sum of absolute values over axes, all by default. */
  declare readonly sumOfAbsolutes: Reduction;
  /** Square root of the sum of squares over axes, all by default; at 0 its gradient is 0. */
  declare readonly norm: Reduction;
  /** ln Σ e^a over axes, all by default. */
  declare readonly logSumExp: Reduction;
  /** Product over axes, all by default. */
  declare readonly prod: Reduction;
  /** Index of the first maximum along an axis, as i64. */
  declare readonly argMax: (a: Value, axis: number, keep?: boolean) => Value;
  /**
   * Cumulative sums along an axis; without the element itself if `exclusive`, from the end if
   * `reverse`.
   */
  declare readonly cumsum: (
    a: Value,
    axis: number,
    options?: { exclusive?: boolean; reverse?: boolean },
  ) => Value;
  /** Softmax over an axis. */
  declare readonly softmax: (a: Value, axis?: number) => Value;
  /** ln softmax over an axis. */
  declare readonly logSoftmax: (a: Value, axis?: number) => Value;
  /**
   * −ln softmax(logits)[target] of each row: logits [n, classes], whole targets [n], result [n].
   * A row with target −1 has loss 0 and no gradient.
   */
  declare readonly crossEntropy: (logits: Value, targets: Value) => Value;
  /** LayerNorm over the last axis (Ba, Kiros, Hinton 2016). */
  declare readonly layerNorm: (x: Value, weight: Value, bias: Value, epsilon?: number) => Value;
  /** RMSNorm over the last axis (Zhang, Sennrich 2019): x ÷ √(mean of x² + ε) · weight. */
  declare readonly rmsNorm: (x: Value, weight: Value, epsilon?: number) => Value;
  /**
   * GroupNorm (Wu and He, 2018): normalizes each of `groups` groups of channels of a sample by its
   * mean and deviation, as in PyTorch and from opset 21 in ONNX.
   *
   * @param x [n, channels, ...]
   * @param weight [channels]
   * @param bias [channels]
   */
  declare readonly groupNorm: (
    x: Value,
    groups: number,
    weight: Value,
    bias: Value,
    epsilon?: number,
  ) => Value;
  /** InstanceNorm (Ulyanov, Vedaldi, Lempitsky 2016): GroupNorm with one channel per group. */
  declare readonly instanceNorm: (x: Value, weight: Value, bias: Value, epsilon?: number) => Value;
  /**
   * BatchNorm (Ioffe, Szegedy 2015) by the mean and variance of each channel.
   *
   * With `statistics`, as in inference, the mean and variance are given, such as averages from
   * training. Without, as in training, they are computed from this micro-batch (the variance is
   * divided by the number of elements), gradients flow through them, and no running average is
   * kept.
   *
   * @param x [n, channels, ...]
   * @param weight [channels]
   * @param bias [channels]
   */
  declare readonly batchNorm: (
    x: Value,
    weight: Value,
    bias: Value,
    statistics?: { readonly mean: Value; readonly variance: Value },
    epsilon?: number,
  ) => Value;
  /**
   * Convolution (in the sense of networks: cross-correlation) over one spatial axis or two.
   *
   * @param x [n, channels, ...sizes]
   * @param weight [outputs, channels ÷ groups, ...kernel]
   * @param bias [outputs]
   * @returns [n, outputs, ...counts]
   * @throws {RangeError} when sizes do not fit.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { Graph } from "@troupe/troupe/kernels";
   *
   * const g = new Graph(), x = g.input("x", [8, 3, 28, 28]), w = g.input("w", [16, 3, 3, 3]);
   * const half = g.conv(x, w, undefined, { strides: 2, pads: 1 });
   * assert.deepEqual(half.shape, [8, 16, 14, 14]);
   * assert.deepEqual(g.maxPool(half, 2, { strides: 2 }).shape, [8, 16, 7, 7]);
   * assert.deepEqual(g.upsample(half, 2).shape, [8, 16, 28, 28]);
   * ```
   */
  declare readonly conv: (x: Value, weight: Value, bias?: Value, options?: ConvOptions) => Value;
  /**
   * Transposed convolution, which enlarges images: the gradient of {@linkcode Graph.conv} for its
   * input, with the same weight.
   *
   * @param x [n, channels, ...counts]
   * @param weight [channels, outputs ÷ groups, ...kernel]
   * @param bias [outputs]
   * @returns [n, outputs, ...sizes]
   * @throws {RangeError} when sizes do not fit.
   */
  declare readonly convTranspose: (
    x: Value,
    weight: Value,
    bias?: Value,
    options?: ConvTransposeOptions,
  ) => Value;
  /**
   * Maximum of each window. The gradient goes to the first of equal maxima.
   *
   * @param x [n, channels, ...sizes] with one spatial axis or two
   * @param kernel the size of a window, along each axis
   */
  declare readonly maxPool: (x: Value, kernel: PerAxis, options?: PoolOptions) => Value;
  /** Mean of each window; see {@linkcode Graph.maxPool}. */
  declare readonly averagePool: (x: Value, kernel: PerAxis, options?: AveragePoolOptions) => Value;
  /** Mean of each channel: [n, channels, 1, ...]. */
  declare readonly globalAveragePool: (x: Value) => Value;
  /** Maximum of each channel: [n, channels, 1, ...]. */
  declare readonly globalMaxPool: (x: Value) => Value;
  /**
   * Repeats every element `factors` times along the spatial axes of [n, channels, ...sizes], as the
   * mode "nearest" of Resize and Upsample.
   */
  declare readonly upsample: (x: Value, factors: PerAxis) => Value;
  /**
   * Resizes images [n, channels, ...] by interpolation.
   *
   * @param sizes of the spatial axes
   */
  declare readonly resize: (x: Value, sizes: Ints, options?: InterpolationOptions) => Value;
  /**
   * Pads a tensor with a value, with the elements on its edge, or with its reflection.
   *
   * @param pads elements before each axis, then after each axis
   */
  declare readonly pad: (x: Value, pads: Ints, value?: number | "edge" | "reflect") => Value;
}

/**
 * Signatures of the methods. A question mark marks optional arguments, and a colon precedes the
 * kind of an argument whose name is not a kind; see `graph.ts`.
 */
export const METHOD_SIGNATURES = `
  add|sub|mul|div|pow|mod|minimum|maximum(a: operand, b: operand)
  equal|greater|greaterOrEqual|less|lessOrEqual(a: operand, b: operand)
  where(condition, a: operand, b: operand)  prelu(a: real, slope: operand)
  and|or|xor(p, q)  not(p)  neg|abs|sign|relu|stopGradient(a)  cast(a, dtype)
  reciprocal|floor|ceil|round|exp|log|sqrt|sin|cos|atan|tanh|erf|sigmoid|isNaN(a: real)
  softplus|softsign|silu|hardSwish|mish(a: real)  leakyRelu|elu(a: real, alpha?)
  hardSigmoid(a: real, alpha?, beta?)  selu(a: real, alpha?, gamma?)
  gelu(a: real, approximate?)  clip(a: real, low?, high?)
  reshape(a, shape: list)  expand(a, shape)  flatten(a, axis?)  transpose(a, permutation)
  split(a, axis: place, parts)  concat(values, axis)  slice(a, starts, ends, axes?, steps?)
  tile(a, repeats)  trilu(a, which, diagonal?)  depthToSpace(a, block, mode?: layout)
  gather(table, indices, axis?: place)  gatherElements(a, indices, axis: place)
  gatherND(a, indices)  scatterElements(base, indices, updates, axis: place, reduction?)
  scatterND(base, indices, updates, reduction?)  scatterAdd(base, indices, updates)
  scatterAddColumns(base, columns, updates)  oneHot(indices, size, options?)
  matmul(a, b, options?)  gemm(a, b, c?, options?)  einsum(equation, operands)
  sum|mean|sumOfSquares|max|min|sumOfAbsolutes|norm|logSumExp|prod(a, axes?, keep?)
  argMax(a, axis: place, keep?)  cumsum(a, axis: place, options?)
  softmax|logSoftmax(a: real, axis?: place)  crossEntropy(logits, targets)
  conv|convTranspose(x, weight, bias?, options?)  maxPool|averagePool(x, kernel, options?)
  globalAveragePool|globalMaxPool(x)  upsample(x: value, factors)  resize(x, sizes, options?)
  pad(x: value, pads: list, value?: filling)  rmsNorm(x, weight, epsilon?)
  layerNorm|instanceNorm(x, weight, bias, epsilon?)  groupNorm(x, groups, weight, bias, epsilon?)
  batchNorm(x, weight, bias, statistics?, epsilon?)
  input(name, shape, dtype?)  constant(data, shape, dtype?)  scalar(value: number, dtype?)
  int64(values: list)  node(op, inputs)
`;
