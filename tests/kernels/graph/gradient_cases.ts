/** Graphs of which gradients are asked, at least one for each gradient rule. */

import type { Graph, Value } from "../../../kernels/mod.ts";
import type { Case } from "./slopes.ts";
import { WINDOW_CASES } from "./window_cases.ts";

const matrix = [3, 4] as const;
const indices = (g: Graph, ...values: number[]) =>
  g.constant(Int32Array.from(values), [values.length], "i32");
const square = (g: Graph, ...values: number[]) =>
  g.constant(Int32Array.from(values), [2, values.length / 2], "i32");

/** A case whose one input is 3 × 4. */
const one = (build: (g: Graph, a: Value) => Value, range?: Case["range"]): Case => ({
  shapes: [matrix],
  build: (g, a) => build(g, a!),
  ...range && { range },
});

/** A case on both sides of a bend at 0. */
const bent = (build: (g: Graph, a: Value) => Value): readonly Case[] => [
  one(build, [0.1, 1]),
  one(build, [-1, -0.1]),
];

/** Two tensors of which one element is larger here, the other there, and none nearly equal. */
const farApart = (choose: (g: Graph, a: Value, b: Value) => Value): readonly Case[] =>
  [1, -1].map((sign) => ({
    shapes: [matrix, [4]],
    range: [0.5, 1],
    build: (g, a, b) =>
      choose(g, a!, g.mul(b!, g.constant(Float32Array.of(3, 0, 2, -1).map((x) => sign * x), [4]))),
  }));

/** By operation; a test says when one is missing. */
export const CASES: Readonly<Record<string, readonly Case[]>> = {
  Add: [{ shapes: [matrix, [4]], build: (g, a, b) => g.add(a!, b!) }],
  Sub: [{ shapes: [[3, 1], matrix], build: (g, a, b) => g.sub(a!, b!) }],
  Mul: [
    { shapes: [matrix, [3, 1]], build: (g, a, b) => g.mul(a!, b!) },
    { shapes: [matrix], build: (g, a) => g.mul(a!, a!) },
  ],
  Div: [{ shapes: [matrix, [4]], range: [0.5, 2], build: (g, a, b) => g.div(a!, b!) }],
  Pow: [
    one((g, a) => g.pow(a, g.scalar(2))),
    one((g, a) => g.pow(a, g.scalar(3))),
    { shapes: [matrix, [3, 1]], range: [0.5, 2], build: (g, a, b) => g.pow(a!, b!) },
  ],
  Mod: [{
    shapes: [matrix, [4]],
    range: [0.5, 0.52],
    build: (g, a, b) => g.mod(g.mul(a!, g.scalar(2.5)), b!),
  }],
  Min: farApart((g, a, b) => g.minimum(a, b)),
  Max: farApart((g, a, b) => g.maximum(a, b)),
  Clip: [
    one((g, a) => g.clip(a, -2, 2)),
    one((g, a) => g.clip(g.exp(a), 3.5)),
    one((g, a) => g.clip(g.mul(a, a), undefined, 0.5), [0.1, 0.6]),
  ],
  Reciprocal: [one((g, a) => g.reciprocal(a), [0.5, 2])],
  Abs: bent((g, a) => g.abs(a)),
  Sin: [one((g, a) => g.sin(a), [-3, 3])],
  Cos: [one((g, a) => g.cos(a), [-3, 3])],
  HardSigmoid: [one((g, a) => g.hardSigmoid(a)), one((g, a) => g.hardSigmoid(a, 0.2), [3, 4])],
  LeakyRelu: bent((g, a) => g.leakyRelu(a, 0.3)),
  PRelu: [0, 1].map((i) => ({
    shapes: [matrix, [4]],
    range: ([[0.1, 1], [-1, -0.1]] as const)[i]!,
    build: (g, a, slope) => g.prelu(a!, slope!),
  })),
  Elu: [...bent((g, a) => g.elu(a, 0.7)), ...bent((g, a) => g.selu(a))],
  Softplus: [one((g, a) => g.softplus(a), [-3, 3]), one((g, a) => g.mish(a), [-3, 3])],
  HardSwish: [one((g, a) => g.hardSwish(a), [-2.9, 2.9]), one((g, a) => g.hardSwish(a), [3.1, 5])],
  QuickGelu: [one((g, a) => g.silu(a), [-3, 3])],
  Neg: [{ shapes: [matrix], build: (g, a) => g.neg(a!) }],
  Exp: [{ shapes: [matrix], build: (g, a) => g.exp(a!) }],
  Log: [{ shapes: [matrix], range: [0.5, 2], build: (g, a) => g.log(a!) }],
  Sqrt: [{ shapes: [matrix], range: [0.5, 2], build: (g, a) => g.sqrt(a!) }],
  Tanh: [{ shapes: [matrix], build: (g, a) => g.tanh(a!) }],
  Erf: [{ shapes: [matrix], build: (g, a) => g.erf(a!) }],
  Sigmoid: [{ shapes: [matrix], build: (g, a) => g.sigmoid(a!) }],
  Relu: [
    { shapes: [matrix], range: [0.1, 1], build: (g, a) => g.relu(g.sub(a!, g.scalar(0.05))) },
    {
      shapes: [matrix],
      range: [-1, -0.1],
      build: (g, a) => g.relu(a!),
    },
  ],
  FastGelu: [{ shapes: [matrix], range: [-3, 3], build: (g, a) => g.gelu(a!) }],
  Gelu: [{ shapes: [matrix], range: [-3, 3], build: (g, a) => g.gelu(a!, "none") }],
  Cast: [{ shapes: [matrix], build: (g, a) => g.cast(g.cast(a!, "f16"), "f32") }],
  Reshape: [{ shapes: [matrix], build: (g, a) => g.exp(g.reshape(a!, [2, 6])) }],
  Expand: [{ shapes: [[3, 1]], build: (g, a) => g.exp(g.expand(a!, [2, 3, 4])) }],
  Transpose: [{ shapes: [[2, 3, 4]], build: (g, a) => g.transpose(a!, [2, 0, 1]) }],
  Split: [
    { shapes: [[3, 6]], build: (g, a) => g.mul(g.split(a!, 1, 3)[0]!, g.split(a!, 1, 3)[2]!) },
    { shapes: [[3, 6]], build: (g, a) => g.exp(g.split(a!, -1, 2)[1]!) },
    { shapes: [[3, 6]], build: (g, a) => g.exp(g.split(a!, 1, [1, 3, 2])[1]!) },
  ],
  Concat: [
    { shapes: [matrix, matrix], build: (g, a, b) => g.exp(g.concat([a!, b!], 0)) },
    { shapes: [matrix, [3, 1]], build: (g, a, b) => g.exp(g.concat([a!, b!], -1)) },
  ],
  Slice: [
    one((g, a) => g.exp(g.cut(a, [1], [-1], [1]))),
    one((g, a) => g.exp(g.cut(a, [0, 1], [2, 100], [0, 1], [1, 2]))),
    one((g, a) => g.exp(g.cut(a, [-1], [-100], [1], [-1]))),
    { shapes: [[2, 7]], build: (g, a) => g.exp(g.cut(a!, [5], [0], [1], [-2])) },
    { shapes: [[2, 7]], build: (g, a) => g.exp(g.cut(a!, [1], [6], [1], [3])) },
  ],
  Where: [{
    shapes: [matrix, [4]],
    build: (g, a, b) =>
      g.where(g.greater(g.constant(Float32Array.of(1, -1, 1, -1), [4]), g.scalar(0)), a!, b!),
  }],
  ReduceSum: [{ shapes: [[2, 3, 4]], build: (g, a) => g.exp(g.sum(a!, [1])) }],
  ReduceMean: [{ shapes: [[2, 3, 4]], build: (g, a) => g.exp(g.mean(a!, [0, 2], true)) }],
  ReduceSumSquare: [{ shapes: [matrix], build: (g, a) => g.sumOfSquares(a!, [1]) }],
  ReduceMax: [
    one((g, a) => g.max(g.add(a, g.constant(Float32Array.of(0, 3, 6, 9), [4])), [1])),
    one((g, a) => g.max(g.add(a, g.constant(Float32Array.of(0, 6, 3), [3, 1])), [0], true)),
  ],
  ReduceMin: [
    one((g, a) => g.min(g.mul(a, g.constant(Float32Array.of(9, -9, 5, 1), [4]))), [0.5, 1]),
  ],
  ReduceL2: [one((g, a) => g.norm(a, [0, 1])), one((g, a) => g.norm(a, [1], true))],
  ReduceLogSumExp: [one((g, a) => g.logSumExp(a, [1])), one((g, a) => g.logSumExp(a, [0], true))],
  CumSum: [
    one((g, a) => g.exp(g.cumulativeSum(a, 1))),
    one((g, a) => g.exp(g.cumulativeSum(a, 0, { exclusive: true }))),
    one((g, a) => g.exp(g.cumulativeSum(a, -1, { exclusive: true, reverse: true }))),
  ],
  MatMul: [
    { shapes: [[4], [2, 4, 5]], build: (g, a, b) => g.matmul(a!, b!) },
    { shapes: [[2, 3, 4], [4]], build: (g, a, b) => g.matmul(a!, b!) },
    { shapes: [[4], [4]], build: (g, a, b) => g.matmul(a!, b!) },
    ...[
      { equation: "bhqd,bhkd->bhqk", shapes: [[2, 3, 4, 5], [2, 3, 2, 5]] },
      { equation: "ij,kj,k->i", shapes: [[2, 3], [4, 3], [4]] },
      { equation: "ij, k", shapes: [[2, 3], [4]] },
    ].map(({ equation, shapes }): Case => ({
      shapes,
      build: (g, ...all) => g.einsum(equation, all),
    })),
    { shapes: [[2, 1, 3, 4], [5, 4, 2]], build: (g, a, b) => g.matmul(a!, b!) },
    { shapes: [[2, 3, 4], [2, 4, 5]], build: (g, a, b) => g.matmul(a!, b!) },
    { shapes: [[2, 3, 4], [4, 5]], build: (g, a, b) => g.matmul(a!, b!) },
  ],
  FusedMatMul: [
    {
      shapes: [[2, 3, 4], [2, 5, 4]],
      build: (g, a, b) => g.matmul(a!, b!, { transB: true, alpha: 0.5 }),
    },
    { shapes: [[2, 4, 3], [2, 4, 5]], build: (g, a, b) => g.matmul(a!, b!, { transA: true }) },
    {
      shapes: [[4, 3], [5, 4]],
      build: (g, a, b) => g.matmul(a!, b!, { transA: true, transB: true }),
    },
  ],
  Gemm: [
    { shapes: [[3, 4], [4, 5], [5]], build: (g, a, b, c) => g.gemm(a!, b!, c!) },
    { shapes: [[4, 3], [4, 5]], build: (g, a, b) => g.gemm(a!, b!, undefined, { transA: true }) },
    {
      shapes: [[3, 4], [5, 4]],
      build: (g, a, b) => g.gemm(a!, b!, undefined, { transB: true, alpha: 2 }),
    },
    {
      shapes: [[4, 3], [5, 4], [3, 1]],
      build: (g, a, b, c) => g.gemm(a!, b!, c!, { transA: true, transB: true }),
    },
    { shapes: [[3, 4], [4, 5], [5]], build: (g, a, b, c) => g.gemm(a!, b!, c!, { beta: 0.5 }) },
  ],
  Softmax: [{ shapes: [matrix], build: (g, a) => g.softmax(a!) }, {
    shapes: [matrix],
    build: (g, a) => g.softmax(a!, 0),
  }],
  LogSoftmax: [one((g, a) => g.logSoftmax(a)), one((g, a) => g.logSoftmax(a, 0))],
  SimplifiedLayerNormalization: [
    { shapes: [[2, 3, 8], [8]], build: (g, x, weight) => g.exp(g.rmsNorm(x!, weight!, 0.1)) },
  ],
  LayerNormalization: [{
    shapes: [[3, 8], [8], [8]],
    build: (g, x, weight, bias) => g.layerNorm(x!, weight!, bias!),
  }],
  Gather: [
    { shapes: [[5, 3]], build: (g, table) => g.exp(g.gather(table!, indices(g, 4, 1, 4, 0))) },
    { shapes: [[2, 5, 3]], build: (g, a) => g.exp(g.gather(a!, square(g, 4, -1, 0, 2), 1)) },
    { shapes: [[2, 3, 5]], build: (g, a) => g.exp(g.gather(a!, indices(g, 1, 1, 0), -1)) },
    {
      shapes: [[2, 5, 3]],
      build: (g, a) => g.exp(g.gather(a!, g.constant(BigInt64Array.of(-2n), [], "i64"), 1)),
    },
    { shapes: [[2, 3, 4]], build: (g, a) => g.exp(g.gatherND(a!, square(g, 1, 2, 0, 0))) },
  ],
  GatherElements: [
    one((g, a) => g.exp(g.gatherElements(a, square(g, 0, 3, 3, 3, 1, -1), 1))),
    one((g, a) => g.exp(g.gatherElements(a, square(g, 0, 2, 2, 2, 1, 2, 0, 1), 0))),
  ],
  ScatterElements: (["none", "add"] as const).map((reduction) => ({
    shapes: [matrix, [2, 2]],
    build: (g, a, b) => g.exp(g.scatterElements(a!, square(g, 0, 3, 2, 1), b!, 1, reduction)),
  })),
  ScatterND: (["none", "add"] as const).flatMap((reduction) => [
    {
      shapes: [matrix, [2]],
      build: (g: Graph, a?: Value, b?: Value) =>
        g.exp(g.scatterND(a!, square(g, 0, 3, 2, 1), b!, reduction)),
    },
    {
      shapes: [matrix, [2, 4]],
      build: (g: Graph, a?: Value, b?: Value) =>
        g.exp(g.scatterND(a!, square(g, 2, 0), b!, reduction)),
    },
  ]),
  CrossEntropy: [{
    shapes: [[3, 5]],
    build: (g, logits) => g.crossEntropy(logits!, indices(g, 2, 0, 4)),
  }],
  ...WINDOW_CASES,
};
