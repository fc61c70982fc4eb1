/** Graphs of which gradients are asked, at least one for each gradient rule. */

import type { Graph, Value } from "../../../kernels/mod.ts";
import { type Case, on } from "./slopes.ts";
import { WINDOW_CASES } from "./window_cases.ts";

const M = [3, 4] as const;
const indices = (g: Graph, ...values: number[]) =>
  g.constant(Int32Array.from(values), [values.length], "i32");
const square = (g: Graph, ...values: number[]) =>
  g.constant(Int32Array.from(values), [2, values.length / 2], "i32");
const floats = (g: Graph, shape: readonly number[], ...values: number[]) =>
  g.constant(Float32Array.from(values), shape);

/** A case whose one input is 3 × 4. */
const one = (build: (g: Graph, a: Value) => Value, range?: Case["range"]): Case =>
  on([M], build, range);

/** A case of one input whose result is passed through an exponential: the gradient depends on it. */
const grown = (shape: readonly number[], build: (g: Graph, a: Value) => Value): Case =>
  on([shape], (g, a) => g.exp(build(g, a)));

/** A case on both sides of a bend at 0. */
const bent = (build: (g: Graph, a: Value) => Value): readonly Case[] => [
  one(build, [0.1, 1]),
  one(build, [-1, -0.1]),
];

/** Two tensors of which one element is larger here, the other there, and none nearly equal. */
const farApart = (choose: (g: Graph, a: Value, b: Value) => Value): readonly Case[] =>
  [1, -1].map((sign) =>
    on(
      [M, [4]],
      (g, a, b) => choose(g, a, g.mul(b, floats(g, [4], 3 * sign, 0, 2 * sign, -sign))),
      [0.5, 1],
    )
  );

type Simple =
  | ("Neg" | "Exp" | "Log" | "Sqrt" | "Tanh" | "Erf" | "Sigmoid" | "Sin" | "Cos")
  | "Reciprocal";

/** Operations of one input whose method has their name. */
const functions = (range: Case["range"], ...ops: readonly Simple[]) =>
  Object.fromEntries(
    ops.map((op) => [op, [one((g, a) => g[op.toLowerCase() as Lowercase<Simple>](a), range)]]),
  );

/** Products of matrices of these shapes. */
const products = (
  options: Parameters<Graph["matmul"]>[2],
  ...pairs: readonly (readonly [readonly number[], readonly number[]])[]
) => pairs.map((shapes) => on(shapes, (g, a, b) => g.matmul(a, b, options)));

const gemm = (shapes: Case["shapes"], options?: Parameters<Graph["gemm"]>[3]): Case =>
  on(shapes, (g, a, b, c) => g.gemm(a, b, c, options));

const einsum = (equation: string, ...shapes: readonly (readonly number[])[]): Case => ({
  shapes,
  build: (g, ...all) => g.einsum(equation, all),
});

/** By operation; a test says when one is missing. */
export const CASES: Readonly<Record<string, readonly Case[]>> = {
  ...functions([-1, 1], "Neg", "Exp", "Tanh", "Erf", "Sigmoid"),
  ...functions([0.5, 2], "Log", "Sqrt", "Reciprocal"),
  ...functions([-3, 3], "Sin", "Cos"),
  Identity: [one((g, a) => g.node("Identity", [a], [M])[0]!)],
  Add: [on([M, [4]], (g, a, b) => g.add(a, b))],
  Sub: [on([[3, 1], M], (g, a, b) => g.sub(a, b))],
  Mul: [on([M, [3, 1]], (g, a, b) => g.mul(a, b)), one((g, a) => g.mul(a, a))],
  Div: [on([M, [4]], (g, a, b) => g.div(a, b), [0.5, 2])],
  Pow: [
    one((g, a) => g.pow(a, g.scalar(2))),
    one((g, a) => g.pow(a, g.scalar(3))),
    on([M, [3, 1]], (g, a, b) => g.pow(a, b), [0.5, 2]),
    one((g, a) => g.pow(g.mul(a, floats(g, [4], 0, 1, 0, 1)), floats(g, [4], 0, 0, 2, 1))),
    one((g, a) => g.pow(g.mul(a, g.scalar(0)), g.scalar(0))),
  ],
  Mod: [on([M, [4]], (g, a, b) => g.mod(g.mul(a, g.scalar(2.5)), b), [0.5, 0.52])],
  Min: farApart((g, a, b) => g.minimum(a, b)),
  Max: farApart((g, a, b) => g.maximum(a, b)),
  Clip: [
    one((g, a) => g.clip(a, -2, 2)),
    one((g, a) => g.clip(g.exp(a), 3.5)),
    one((g, a) => g.clip(g.mul(a, a), undefined, 0.5), [0.1, 0.6]),
  ],
  Abs: bent((g, a) => g.abs(a)),
  HardSigmoid: [
    one((g, a) => g.hardSigmoid(a)),
    one((g, a) => g.hardSigmoid(a, 0.2), [3, 4]),
    one((g, a) => g.hardSigmoid(a, 0.2), [-4, -3]),
  ],
  LeakyRelu: bent((g, a) => g.leakyRelu(a, 0.3)),
  PRelu: ([[0.1, 1], [-1, -0.1]] as const).map((range) =>
    on([M, [4]], (g, a, slope) => g.prelu(a, slope), range)
  ),
  Elu: [...bent((g, a) => g.elu(a, 0.7)), ...bent((g, a) => g.selu(a))],
  Atan: [one((g, a) => g.atan(a), [-3, 3])],
  Softplus: [one((g, a) => g.softplus(a), [-3, 3]), one((g, a) => g.mish(a), [-3, 3])],
  HardSwish: ([[-2.9, 2.9], [3.1, 5], [-5, -3.1]] as const).map((range) =>
    one((g, a) => g.hardSwish(a), range)
  ),
  QuickGelu: [one((g, a) => g.silu(a), [-3, 3])],
  Relu: [
    one((g, a) => g.relu(g.sub(a, g.scalar(0.05))), [0.1, 1]),
    one((g, a) => g.relu(a), [-1, -0.1]),
  ],
  FastGelu: [one((g, a) => g.gelu(a), [-3, 3])],
  Gelu: [one((g, a) => g.gelu(a, "none"), [-3, 3])],
  Cast: [one((g, a) => g.cast(g.cast(a, "f16"), "f32"))],
  Reshape: [grown(M, (g, a) => g.reshape(a, [2, 6]))],
  Expand: [grown([3, 1], (g, a) => g.expand(a, [2, 3, 4]))],
  Transpose: [on([[2, 3, 4]], (g, a) => g.transpose(a, [2, 0, 1]))],
  Split: [
    on([[3, 6]], (g, a) => g.mul(g.split(a, 1, 3)[0]!, g.split(a, 1, 3)[2]!)),
    grown([3, 6], (g, a) => g.split(a, -1, 2)[1]!),
    grown([3, 6], (g, a) => g.split(a, 1, [1, 3, 2])[1]!),
    grown([3, 6], (g, a) => g.split(a, 1, [0, 6])[1]!),
  ],
  Concat: [
    on([M, M], (g, a, b) => g.exp(g.concat([a, b], 0))),
    on([M, [3, 1]], (g, a, b) => g.exp(g.concat([a, b], -1))),
  ],
  Slice: [
    grown(M, (g, a) => g.slice(a, [1], [-1], [1])),
    grown(M, (g, a) => g.slice(a, [0, 1], [2, 100], [0, 1], [1, 2])),
    grown(M, (g, a) => g.slice(a, [-1], [-100], [1], [-1])),
    grown([2, 7], (g, a) => g.slice(a, [5], [0], [1], [-2])),
    grown([2, 7], (g, a) => g.slice(a, [1], [6], [1], [3])),
    on([M], (g, a) => g.add(g.sum(g.slice(a, [-1], [Infinity], [1], [-2])), g.sum(a))),
  ],
  Where: [
    on([M, [4]], (g, a, b) => g.where(g.greater(floats(g, [4], 1, -1, 1, -1), g.scalar(0)), a, b)),
  ],
  ReduceSum: [grown([2, 3, 4], (g, a) => g.sum(a, [1]))],
  ReduceMean: [grown([2, 3, 4], (g, a) => g.mean(a, [0, 2], true))],
  ReduceSumSquare: [one((g, a) => g.sumOfSquares(a, [1]))],
  ReduceMax: [
    one((g, a) => g.max(g.add(a, floats(g, [4], 0, 3, 6, 9)), [1])),
    one((g, a) => g.max(g.add(a, floats(g, [3, 1], 0, 6, 3)), [0], true)),
  ],
  ReduceMin: [one((g, a) => g.min(g.mul(a, floats(g, [4], 9, -9, 5, 1))), [0.5, 1])],
  ReduceL2: [one((g, a) => g.norm(a, [0, 1])), one((g, a) => g.norm(a, [1], true))],
  ReduceLogSumExp: [one((g, a) => g.logSumExp(a, [1])), one((g, a) => g.logSumExp(a, [0], true))],
  CumSum: [
    grown(M, (g, a) => g.cumsum(a, 1)),
    grown(M, (g, a) => g.cumsum(a, 0, { exclusive: true })),
    grown(M, (g, a) => g.cumsum(a, -1, { exclusive: true, reverse: true })),
  ],
  MatMul: [
    ...products({}, [[4], [2, 4, 5]], [[2, 3, 4], [4]], [[4], [4]], [[2, 1, 3, 4], [5, 4, 2]]),
    ...products({}, [[2, 3, 4], [2, 4, 5]], [[2, 3, 4], [4, 5]]),
    einsum("bhqd,bhkd->bhqk", [2, 3, 4, 5], [2, 3, 2, 5]),
    einsum("ij,kj,k->i", [2, 3], [4, 3], [4]),
    einsum("ij, k", [2, 3], [4]),
  ],
  FusedMatMul: [
    ...products({ transB: true, alpha: 0.5 }, [[2, 3, 4], [2, 5, 4]]),
    ...products({ transA: true }, [[2, 4, 3], [2, 4, 5]]),
    ...products({ transA: true, transB: true }, [[4, 3], [5, 4]]),
  ],
  Gemm: [
    gemm([[3, 4], [4, 5], [5]]),
    gemm([[4, 3], [4, 5]], { transA: true }),
    gemm([[3, 4], [5, 4]], { transB: true, alpha: 2 }),
    gemm([[4, 3], [5, 4], [3, 1]], { transA: true, transB: true }),
    gemm([[3, 4], [4, 5], [5]], { beta: 0.5 }),
  ],
  Softmax: [one((g, a) => g.softmax(a)), one((g, a) => g.softmax(a, 0))],
  LogSoftmax: [one((g, a) => g.logSoftmax(a)), one((g, a) => g.logSoftmax(a, 0))],
  SimplifiedLayerNormalization: [
    on([[2, 3, 8], [8]], (g, x, weight) => g.exp(g.rmsNorm(x, weight, 0.1))),
  ],
  LayerNormalization: [[3, 8], [8]].map((shape) =>
    on([shape, [8], [8]], (g, x, w, bias) => g.layerNorm(x, w, bias))
  ),
  Gather: [
    grown([5, 3], (g, table) => g.gather(table, indices(g, 4, 1, 4, 0))),
    grown([2, 5, 3], (g, a) => g.gather(a, square(g, 4, -1, 0, 2), 1)),
    grown([2, 3, 5], (g, a) => g.gather(a, indices(g, 1, 1, 0), -1)),
    grown([2, 5, 3], (g, a) => g.gather(a, g.constant(BigInt64Array.of(-2n), [], "i64"), 1)),
    grown([2, 3, 4], (g, a) => g.gatherND(a, square(g, 1, 2, 0, 0))),
  ],
  GatherElements: [
    grown(M, (g, a) => g.gatherElements(a, square(g, 0, 3, 3, 3, 1, -1), 1)),
    grown(M, (g, a) => g.gatherElements(a, square(g, 0, 2, 2, 2, 1, 2, 0, 1), 0)),
  ],
  ScatterElements: (["none", "add"] as const).map((how) =>
    on([M, [2, 2]], (g, a, b) => g.exp(g.scatterElements(a, square(g, 0, 3, 2, 1), b, 1, how)))
  ),
  ScatterND: (["none", "add"] as const).flatMap((how) => [
    on([M, [2]], (g, a, b) => g.exp(g.scatterND(a, square(g, 0, 3, 2, 1), b, how))),
    on([M, [2, 4]], (g, a, b) => g.exp(g.scatterND(a, square(g, 2, 0), b, how))),
  ]),
  CrossEntropy: [on([[3, 5]], (g, logits) => g.crossEntropy(logits, indices(g, 2, 0, 4)))],
  ...WINDOW_CASES,
};
