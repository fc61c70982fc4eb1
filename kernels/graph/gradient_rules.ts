/**
 * The gradient of every op that can be trained through, as ONNX nodes in the same graph.
 *
 * A rule gets the node and the cotangents of its outputs (absent where nothing depends on that
 * output) and returns those of its inputs. Inputs that need no gradient are not computed.
 *
 * @module
 */

import type { Graph } from "./graph.ts";
import { elementCount, sameShape } from "./shapes.ts";
import { type FusedOp, type Node, TROUPE, type Value } from "./value.ts";

/** Computes the cotangents of a node's inputs from those of its outputs. */
export type GradientRule = (
  g: Graph,
  node: Node,
  cotangents: readonly (Value | undefined)[],
  /** Which inputs need a gradient. */
  needed: readonly boolean[],
) => (Value | undefined)[];

/** Sums `gradient` over the axes along which a tensor of shape `shape` was broadcast. */
function unbroadcast(g: Graph, gradient: Value, shape: readonly number[]): Value {
  if (sameShape(gradient.shape, shape)) return gradient;
  const extra = gradient.shape.length - shape.length;
  const axes = gradient.shape.flatMap((size, i) =>
    i < extra || (shape[i - extra] === 1 && size !== 1) ? [i] : []
  );
  return g.reshape(g.sum(gradient, axes), shape);
}

/** A rule for ops with one input and one output. */
function unary(rule: (g: Graph, dy: Value, x: Value, y: Value, node: Node) => Value): GradientRule {
  return (g, node, [dy]) => [rule(g, dy!, node.inputs[0]!, node.outputs[0]!, node)];
}

/** A rule for element-wise ops with two inputs, which may have been broadcast. */
function binary(
  left: (g: Graph, dy: Value, a: Value, b: Value, y: Value) => Value,
  right: (g: Graph, dy: Value, a: Value, b: Value, y: Value) => Value,
): GradientRule {
  return (g, node, [dy], needed) => {
    const [a, b] = node.inputs as [Value, Value], y = node.outputs[0]!;
    return [
      needed[0] ? unbroadcast(g, left(g, dy!, a, b, y), a.shape) : undefined,
      needed[1] ? unbroadcast(g, right(g, dy!, a, b, y), b.shape) : undefined,
    ];
  };
}

const flag = (node: Node, name: string) => node.attributes[name] === 1;

const alphaOf = (node: Node) =>
  (node.attributes.alpha as { float: number } | undefined)?.float ?? 1;

/** The matrix and the factors of its rows whose product is `dy`. */
function scaledRows(dy: Value): { readonly rows: Value; readonly factors: Value } | undefined {
  const [rows, factors] = dy.node?.op === "Mul" ? dy.node.inputs as [Value, Value] : [];
  const isScaled = rows && factors && sameShape(rows.shape, dy.shape) &&
    sameShape(factors.shape, [dy.shape[0]!, 1]);
  return isScaled ? { rows, factors } : undefined;
}

/**
 * y = α·op(a)·op(b): da = α·dy·op(b)ᵀ, db = α·op(a)ᵀ·dy, each transposed back where needed. Where a
 * gradient has factors of its rows and is wider than `a`, as that of logits, `a` takes them in its
 * place.
 */
const product: GradientRule = (g, node, [dy], needed) => {
  const [a, b] = node.inputs as [Value, Value];
  const ta = flag(node, "transA"), tb = flag(node, "transB"), alpha = alphaOf(node);
  const multiply = (x: Value, y: Value, transA: boolean, transB: boolean) =>
    node.op === "Gemm"
      ? g.gemm(x, y, undefined, { transA, transB, alpha })
      : g.matmul(x, y, { transA, transB, alpha });
  const scaled = !ta && dy!.shape[1]! > a.shape[1]! ? scaledRows(dy!) : undefined;
  const dRows = scaled?.rows ?? dy!, toRows = (x: Value) => scaled ? g.mul(x, scaled.factors) : x;
  const da = () => ta ? multiply(b, dRows, tb, true) : toRows(multiply(dRows, b, false, !tb));
  const db = () =>
    tb ? multiply(dRows, toRows(a), true, ta) : multiply(toRows(a), dRows, !ta, false);
  return [
    needed[0] ? unbroadcast(g, da(), a.shape) : undefined,
    needed[1] ? unbroadcast(g, db(), b.shape) : undefined,
    needed[2] ? unbroadcast(g, dy!, node.inputs[2]!.shape) : undefined,
  ];
};

/** An operation of our own, of which the first output is like the first input. */
function fused(
  g: Graph,
  op: FusedOp,
  inputs: readonly Value[],
  outputs: readonly (readonly number[])[] = [inputs[0]!.shape],
): Value[] {
  return g.node(op, inputs, outputs, {}, TROUPE);
}

/** y' = Φ(x) + x·φ(x). */
function exactGelu(g: Graph, dy: Value, x: Value): Value {
  const half = g.scalar(0.5);
  const cdf = g.add(g.mul(g.erf(g.mul(x, g.scalar(Math.SQRT1_2))), half), half);
  const pdf = g.mul(
    g.exp(g.mul(g.mul(x, x), g.scalar(-0.5))),
    g.scalar(1 / Math.sqrt(2 * Math.PI)),
  );
  return g.mul(dy, g.add(cdf, g.mul(x, pdf)));
}

/** The gradients of x, and of weight and bias: two operations, as I needs one of them and W the other. */
const layerNorm: GradientRule = (g, node, [dy], needed) => {
  const [x, weight, bias] = node.inputs as [Value, Value, Value];
  const [, mean, inverseDeviation] = node.outputs as [Value, Value, Value];
  const statistics = [x, mean, inverseDeviation];
  const [dWeight, dBias] = needed[1] || needed[2]
    ? fused(g, "LayerNormWeightGrad", [dy!, ...statistics], [weight.shape, bias.shape])
    : [];
  return [
    needed[0] ? fused(g, "LayerNormInputGrad", [dy!, ...statistics, weight])[0] : undefined,
    needed[1] ? dWeight : undefined,
    needed[2] ? dBias : undefined,
  ];
};

/** Spreads the gradient of a reduction over the axes that it removed. */
function spread(g: Graph, dy: Value, node: Node): Value {
  const x = node.inputs[0]!, axes = [...node.inputs[1]!.data as BigInt64Array].map(Number);
  return g.expand(g.reshape(dy, x.shape.map((size, i) => axes.includes(i) ? 1 : size)), x.shape);
}

/**
 * d logits = (softmax − onehot(target))·dy, row by row; nothing for rows whose target is −1. What is
 * in brackets may be computed over the logits: see [Note: activations that are overwritten].
 */
const crossEntropy: GradientRule = (g, node, [dy]) => {
  const [logits, targets] = node.inputs as [Value, Value], column = [targets.shape[0]!, 1];
  const int = (value: number) => g.constant(Int32Array.of(value), [], "i32");
  const isPredicted = g.greater(targets, int(-1)), classes = g.where(isPredicted, targets, int(0));
  const difference = g.scatterAddColumns(
    g.softmax(logits),
    classes,
    g.expand(g.scalar(-1), column),
  );
  return [g.mul(difference, g.reshape(g.where(isPredicted, dy!, g.scalar(0)), column))];
};

/** Gradient rules by ONNX op. */
export const GRADIENTS: Readonly<Record<string, GradientRule>> = {
  Add: binary((_, dy) => dy, (_, dy) => dy),
  Sub: binary((_, dy) => dy, (g, dy) => g.neg(dy)),
  Mul: binary((g, dy, _, b) => g.mul(dy, b), (g, dy, a) => g.mul(dy, a)),
  Div: binary((g, dy, _, b) => g.div(dy, b), (g, dy, _, b, y) => g.neg(g.div(g.mul(dy, y), b))),
  Neg: unary((g, dy) => g.neg(dy)),
  Exp: unary((g, dy, _, y) => g.mul(dy, y)),
  Log: unary((g, dy, x) => g.div(dy, x)),
  Sqrt: unary((g, dy, _, y) => g.div(g.mul(dy, g.scalar(0.5)), y)),
  Tanh: unary((g, dy, _, y) => g.mul(dy, g.sub(g.scalar(1), g.mul(y, y)))),
  Erf: unary((g, dy, x) =>
    g.mul(dy, g.mul(g.scalar(2 / Math.sqrt(Math.PI)), g.exp(g.neg(g.mul(x, x)))))
  ),
  Sigmoid: unary((g, dy, _, y) => g.mul(dy, g.mul(y, g.sub(g.scalar(1), y)))),
  Relu: unary((g, dy, _, y) => g.where(g.greater(y, g.scalar(0)), dy, g.scalar(0))),
  FastGelu: unary((g, dy, x) => fused(g, "FastGeluGrad", [dy, x])[0]!),
  Gelu: unary(exactGelu),
  Cast: unary((g, dy, x) => g.cast(dy, x.dtype)),
  Reshape: unary((g, dy, x) => g.reshape(dy, x.shape)),
  Expand: unary((g, dy, x) => unbroadcast(g, dy, x.shape)),
  Transpose: unary((g, dy, _x, _y, node) => {
    const permutation = node.attributes.perm as readonly number[];
    return g.transpose(dy, permutation.map((_, axis) => permutation.indexOf(axis)));
  }),
  Split: (g, node, cotangents) => {
    const part = node.outputs[0]!.shape;
    const parts = cotangents.map((dy) => dy ?? g.expand(g.scalar(0), part));
    return [g.concat(parts, node.attributes.axis as number)];
  },
  Concat: (g, node, [dy]) => {
    const axis = node.attributes.axis as number, sizes = node.inputs.map((x) => x.shape[axis]!);
    if (sizes.some((size) => size !== sizes[0])) {
      throw new TypeError("Cannot differentiate Concat: its inputs must have equal sizes");
    }
    return sizes.length === 1 ? [dy] : g.split(dy!, axis, sizes.length);
  },
  Where: (g, node, [dy], needed) => {
    const [condition, a, b] = node.inputs as [Value, Value, Value], zero = g.scalar(0);
    return [
      undefined,
      needed[1] ? unbroadcast(g, g.where(condition, dy!, zero), a.shape) : undefined,
      needed[2] ? unbroadcast(g, g.where(condition, zero, dy!), b.shape) : undefined,
    ];
  },
  ReduceSum: unary((g, dy, _x, _y, node) => spread(g, dy, node)),
  ReduceMean: unary((g, dy, x, y, node) =>
    spread(g, g.mul(dy, g.scalar(elementCount(y.shape) / elementCount(x.shape))), node)
  ),
  ReduceSumSquare: unary((g, dy, x, _, node) => g.mul(spread(g, dy, node), g.mul(x, g.scalar(2)))),
  MatMul: product,
  FusedMatMul: product,
  Gemm: product,
  Softmax: unary((g, dy, _, y, node) => {
    const axis = node.attributes.axis as number;
    if (axis === y.shape.length - 1) return fused(g, "SoftmaxGrad", [dy, y])[0]!;
    const weighted = g.mul(y, dy);
    return g.sub(weighted, g.mul(y, g.sum(weighted, [axis], true)));
  }),
  LayerNormalization: layerNorm,
  Gather: (g, node, [dy]) => {
    const [table, indices] = node.inputs as [Value, Value];
    const count = elementCount(indices.shape);
    const rows = g.reshape(dy!, [count, ...table.shape.slice(1)]);
    return [g.scatterAdd(zeros(g, table.shape), g.reshape(indices, [count]), rows)];
  },
  CrossEntropy: crossEntropy,
};

/** A tensor of zeros; {@linkcode isZeros} recognises it, so that sums need not start from it. */
export function zeros(g: Graph, shape: readonly number[]): Value {
  return g.expand(g.scalar(0), shape);
}

/** Whether a value was made by {@linkcode zeros}. */
export function isZeros(value: Value): boolean {
  const [source] = value.node?.op === "Expand" ? value.node.inputs : [];
  return source?.data?.length === 1 && source.data[0] === 0;
}
