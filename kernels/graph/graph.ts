/**
 * A builder of static-shape ONNX graphs: every method adds one node and returns its value.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import { NodeGraph } from "./node_graph.ts";
import {
  broadcastShape,
  elementCount,
  joinedShape,
  partShape,
  positiveAxis,
  productShape,
  reducedShape,
  sameShape,
  transposedShape,
} from "./shapes.ts";
import { type Attribute, MICROSOFT, ONNX_DTYPE, TROUPE, type Value } from "./value.ts";

/** Options of {@linkcode Graph.matmul} and {@linkcode Graph.gemm}. */
export interface MatmulOptions {
  /** Use the transpose of the last two axes of `a`. */
  transA?: boolean;
  /** Use the transpose of the last two axes of `b`. */
  transB?: boolean;
  /** Factor of the product. */
  alpha?: number;
}

/**
 * A static-shape ONNX graph under construction.
 *
 * @example Build y = gelu(x·w + b)
 * ```ts
 * import assert from "node:assert/strict";
 * import { Graph } from "@troupe/troupe/kernels";
 *
 * const g = new Graph();
 * const x = g.input("x", [8, 4]);
 * const y = g.gelu(g.gemm(x, g.input("w", [4, 16]), g.input("b", [16])));
 * assert.deepEqual(y.shape, [8, 16]);
 * assert.throws(() => g.matmul(x, x), RangeError);
 * ```
 */
export class Graph extends NodeGraph {
  /** a + b */
  add(a: Value, b: Value): Value {
    return one(this, "Add", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a − b */
  sub(a: Value, b: Value): Value {
    return one(this, "Sub", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a · b, element by element */
  mul(a: Value, b: Value): Value {
    return one(this, "Mul", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a ÷ b */
  div(a: Value, b: Value): Value {
    return one(this, "Div", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** −a */
  neg(a: Value): Value {
    return one(this, "Neg", [a], a.shape);
  }
  /** e^a */
  exp(a: Value): Value {
    return one(this, "Exp", [a], a.shape);
  }
  /** ln a */
  log(a: Value): Value {
    return one(this, "Log", [a], a.shape);
  }
  /** √a */
  sqrt(a: Value): Value {
    return one(this, "Sqrt", [a], a.shape);
  }
  /** tanh a */
  tanh(a: Value): Value {
    return one(this, "Tanh", [a], a.shape);
  }
  /** erf a */
  erf(a: Value): Value {
    return one(this, "Erf", [a], a.shape);
  }
  /** 1 ÷ (1 + e^−a) */
  sigmoid(a: Value): Value {
    return one(this, "Sigmoid", [a], a.shape);
  }
  /** max(a, 0) */
  relu(a: Value): Value {
    return one(this, "Relu", [a], a.shape);
  }
  /** GELU: GPT-2's tanh approximation by default, or exact with erf. */
  gelu(a: Value, approximate: "tanh" | "none" = "tanh"): Value {
    return approximate === "tanh"
      ? one(this, "FastGelu", [a], a.shape, {}, MICROSOFT)
      : one(this, "Gelu", [a], a.shape, { approximate });
  }
  /** Another dtype. */
  cast(a: Value, dtype: DType): Value {
    return a.dtype === dtype ? a : this.node("Cast", [a], [{ shape: a.shape, dtype }], {
      to: ONNX_DTYPE[dtype],
    })[0]!;
  }
  /** a > b, as bool. */
  greater(a: Value, b: Value): Value {
    const shape = broadcastShape(a.shape, b.shape);
    return this.node("Greater", [a, b], [{ shape, dtype: "bool" }])[0]!;
  }
  /** condition ? a : b */
  where(condition: Value, a: Value, b: Value): Value {
    const shape = broadcastShape(condition.shape, broadcastShape(a.shape, b.shape));
    return this.node("Where", [condition, a, b], [{ shape, dtype: a.dtype }])[0]!;
  }

  /** The same elements in another shape; free. */
  reshape(a: Value, shape: readonly number[]): Value {
    if (sameShape(a.shape, shape)) return a;
    if (elementCount(shape) !== elementCount(a.shape)) {
      throw new RangeError(
        `Cannot reshape: the number of elements must stay, received [${a.shape}] and [${shape}]`,
      );
    }
    return one(this, "Reshape", [a, this.int64(shape)], shape);
  }
  /** Axes in another order. */
  transpose(a: Value, permutation: readonly number[]): Value {
    return one(this, "Transpose", [a], transposedShape(a.shape, permutation), {
      perm: permutation,
    });
  }
  /** Repeats axes of size one. */
  expand(a: Value, shape: readonly number[]): Value {
    if (sameShape(a.shape, shape)) return a;
    if (!sameShape(broadcastShape(a.shape, shape), shape)) {
      throw new RangeError(`Cannot expand: [${a.shape}] must broadcast to [${shape}]`);
    }
    return one(this, "Expand", [a, this.int64(shape)], shape);
  }
  /** `count` equal parts along an axis. */
  split(a: Value, axis: number, count: number): Value[] {
    const at = positiveAxis(axis, a.shape.length);
    const part = partShape(a.shape, at, count);
    const outputs = Array.from({ length: count }, () => part);
    return this.node("Split", [a], outputs, { axis: at, num_outputs: count });
  }
  /** Joins tensors along an axis. */
  concat(values: readonly Value[], axis: number): Value {
    const at = positiveAxis(axis, values[0]!.shape.length);
    return one(this, "Concat", values, joinedShape(values.map(({ shape }) => shape), at), {
      axis: at,
    });
  }

  /** Batched matrix product of the last two axes. */
  matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1 } = options;
    const shape = productShape(a.shape, b.shape, { transA, transB });
    if (!transA && !transB && alpha === 1) return one(this, "MatMul", [a, b], shape);
    const attributes = { transA: +transA, transB: +transB, alpha: { float: alpha } };
    return one(this, "FusedMatMul", [a, b], shape, attributes, MICROSOFT);
  }
  /** Matrix product a·b + c of two-dimensional tensors; c broadcasts (a bias). */
  gemm(a: Value, b: Value, c?: Value, options: MatmulOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1 } = options;
    const shape = productShape(a.shape, b.shape, { transA, transB }, "two");
    if (c && !sameShape(broadcastShape(c.shape, shape), shape)) {
      throw new RangeError(`Cannot add [${c.shape}] to a product: it must broadcast to [${shape}]`);
    }
    return one(this, "Gemm", c ? [a, b, c] : [a, b], shape, {
      transA: +transA,
      transB: +transB,
      alpha: { float: alpha },
    });
  }

  /** Softmax over an axis. */
  softmax(a: Value, axis = -1): Value {
    return one(this, "Softmax", [a], a.shape, { axis: positiveAxis(axis, a.shape.length) });
  }
  /** LayerNorm over the last axis (Ba, Kiros, Hinton 2016). */
  layerNorm(x: Value, weight: Value, bias: Value, epsilon = 1e-5): Value {
    const stats = { shape: [...x.shape.slice(0, -1), 1], dtype: "f32" as const };
    return this.node("LayerNormalization", [x, weight, bias], [x.shape, stats, stats], {
      axis: -1,
      epsilon: { float: epsilon },
    })[0]!;
  }
  /** Sum over axes, all by default; over none of them (`[]`) it is `a` itself. */
  sum(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceSum", a, axes, keep) ?? a;
  }
  /** Mean over axes, all by default; over none of them (`[]`) it is `a` itself. */
  mean(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceMean", a, axes, keep) ?? a;
  }
  /** Sum of squares over axes, all by default; over none of them (`[]`) it is a². */
  sumOfSquares(a: Value, axes?: readonly number[], keep?: boolean): Value {
    return reduce(this, "ReduceSumSquare", a, axes, keep) ?? this.mul(a, a);
  }

  /** Rows of a table by int32 index: [rows, ...] and [...n] give [...n, ...]. */
  gather(table: Value, indices: Value): Value {
    return one(this, "Gather", [table, indices], [...indices.shape, ...table.shape.slice(1)], {
      axis: 0,
    });
  }
  /** `base` with `updates` [n, ...] added to its rows `indices` [n]. */
  scatterAdd(base: Value, indices: Value, updates: Value): Value {
    const column = this.reshape(this.cast(indices, "i64"), [indices.shape[0]!, 1]);
    return one(this, "ScatterND", [base, column, updates], base.shape, { reduction: "add" });
  }
  /** `base` [n, k] with `updates` [n, 1] added to column `columns` [n] of each row. */
  scatterAddColumns(base: Value, columns: Value, updates: Value): Value {
    const at = this.reshape(columns, [columns.shape[0]!, 1]);
    return one(this, "ScatterElements", [base, at, updates], base.shape, {
      axis: 1,
      reduction: "add",
    });
  }
  /**
   * −ln softmax(logits)[target] of each row: logits [n, classes], targets [n] int32, result [n].
   * A row with target −1 has loss 0 and no gradient.
   */
  crossEntropy(logits: Value, targets: Value): Value {
    if (logits.shape.length !== 2 || !sameShape(targets.shape, logits.shape.slice(0, 1))) {
      throw new RangeError(
        `Cannot take cross-entropy: logits must be [n, classes] and targets [n], received [${logits.shape}] and [${targets.shape}]`,
      );
    }
    return one(this, "CrossEntropy", [logits, targets], targets.shape, {}, TROUPE);
  }
}

function one(
  g: NodeGraph,
  op: string,
  inputs: readonly Value[],
  shape: readonly number[],
  attributes: Record<string, Attribute> = {},
  domain = "",
): Value {
  return g.node(op, inputs, [shape], attributes, domain)[0]!;
}

/** A reduction; undefined over no axes. */
function reduce(
  g: NodeGraph,
  op: string,
  a: Value,
  axes: readonly number[] = a.shape.map((_, i) => i),
  isKept = false,
): Value | undefined {
  if (axes.length === 0) return undefined; // To ONNX, no axes are all of them.
  const at = axes.map((axis) => positiveAxis(axis, a.shape.length));
  return one(g, op, [a, g.int64(at)], reducedShape(a.shape, at, isKept), { keepdims: +isKept });
}
