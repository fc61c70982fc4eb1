/**
 * A builder of static-shape ONNX graphs: every method adds one node and returns its value.
 *
 * Shapes are checked as the graph is built, so that a mistake is told where it was made and not
 * by the device later.
 *
 * @module
 */

import type { DType, HostArray } from "../devices/device.ts";

/** A tensor in a graph: an input, a constant, or the output of a node. */
export interface Value {
  /** Unique in its graph. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes; empty for a scalar. */
  readonly shape: readonly number[];
  /** The node that computes it; absent for inputs and constants. */
  readonly node?: Node;
  /** The data of a constant. */
  readonly data?: HostArray;
}

/** An attribute of an ONNX node. Numbers are integers unless wrapped in `{ float }`. */
export type Attribute = number | string | readonly number[] | { readonly float: number };

/** One ONNX operation. */
export interface Node {
  /** Its place in {@linkcode Graph.nodes}. */
  readonly id: number;
  /** ONNX's name of the operation. */
  readonly op: string;
  /** Empty for ONNX's own operations, else {@linkcode MICROSOFT}. */
  readonly domain: string;
  /** What it reads. */
  readonly inputs: readonly Value[];
  /** What it computes. */
  readonly outputs: readonly Value[];
  /** Its settings. */
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** ONNX Runtime's own operator domain. */
export const MICROSOFT = "com.microsoft";

/**
 * How many elements a shape holds.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { elementCount } from "@troupe/troupe/kernels";
 *
 * assert.equal(elementCount([2, 3, 4]), 24);
 * assert.equal(elementCount([]), 1);
 * ```
 */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** The most elements of a tensor that a device holds, and of all parameters: counted in int32. */
export const ELEMENTS_MAX = 2 ** 31 - 1;

/** Refuses a tensor whose elements cannot be counted. */
function checkElements(shape: readonly number[]): void {
  if (elementCount(shape) <= Number.MAX_SAFE_INTEGER) return;
  throw new RangeError(
    `Cannot build a graph: a tensor must have at most ${Number.MAX_SAFE_INTEGER} elements, received shape [${shape}]`,
  );
}

/** Whether two shapes are the same. */
export function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

/** The shape of an element-wise operation on `a` and `b` (ONNX multidirectional broadcasting). */
export function broadcastShape(a: readonly number[], b: readonly number[]): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, i) => {
    const x = a[a.length - rank + i] ?? 1;
    const y = b[b.length - rank + i] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw new RangeError(
        `Cannot combine tensors: shapes must be equal or broadcast, received [${a}] and [${b}]`,
      );
    }
    return Math.max(x, y);
  });
}

/** The axis counted from the front. */
function positiveAxis(axis: number, rank: number): number {
  const positive = axis < 0 ? axis + rank : axis;
  if (!Number.isInteger(positive) || positive < 0 || positive >= rank) {
    throw new RangeError(
      `Cannot use axis: it must be in -${rank} .. ${rank - 1}, received ${axis}`,
    );
  }
  return positive;
}

/** Options of {@linkcode Graph.matmul} and {@linkcode Graph.gemm}. */
export interface MatmulOptions {
  /** Use the transpose of the last two axes of `a`. */
  transA?: boolean;
  /** Use the transpose of the last two axes of `b`. */
  transB?: boolean;
  /** Factor of the product. */
  alpha?: number;
}

function transposed(shape: readonly number[], yes: boolean | undefined): number[] {
  const result = [...shape];
  if (yes) [result[shape.length - 1], result[shape.length - 2]] = [shape.at(-2)!, shape.at(-1)!];
  return result;
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
export class Graph {
  /** The nodes in the order in which they were added, which is a topological order. */
  readonly nodes: Node[] = [];
  /** The inputs in the order in which they were added. */
  readonly inputs: Value[] = [];
  #names = 0;
  #scalars = new Map<string, Value>();

  /** A named input. Names must be unique in the graph. */
  input(name: string, shape: readonly number[], dtype: DType = "f32"): Value {
    if (this.inputs.some((input) => input.name === name)) {
      throw new TypeError(`Cannot add input: its name must be unique, received "${name}" twice`);
    }
    checkElements(shape);
    const value: Value = { name, shape, dtype };
    this.inputs.push(value);
    return value;
  }

  /** A constant that becomes part of the model. */
  constant(data: HostArray, shape: readonly number[], dtype: DType = "f32"): Value {
    if (data.length !== elementCount(shape)) {
      throw new RangeError(
        `Cannot add constant: shape [${shape}] needs ${
          elementCount(shape)
        } elements, received ${data.length}`,
      );
    }
    return { name: `c${this.#names++}`, shape, dtype, data };
  }

  /** A constant f32 scalar; equal scalars share one constant. */
  scalar(value: number): Value {
    return this.#shared(`f32 ${value}`, () => this.constant(Float32Array.of(value), []));
  }

  #int64(values: readonly number[]): Value {
    return this.#shared(
      `i64 ${values}`,
      () => this.constant(BigInt64Array.from(values, BigInt), [values.length], "i64"),
    );
  }

  #shared(key: string, make: () => Value): Value {
    let value = this.#scalars.get(key);
    if (!value) this.#scalars.set(key, value = make());
    return value;
  }

  /**
   * Adds any ONNX node. `outputs` are the shapes (and dtypes where not that of the first input).
   *
   * Only ops in `gradient_rules.ts` can be trained through; the others may be used where no gradient
   * flows.
   */
  node(
    op: string,
    inputs: readonly Value[],
    outputs: readonly (readonly number[] | { shape: readonly number[]; dtype: DType })[],
    attributes: Record<string, Attribute> = {},
    domain = "",
  ): Value[] {
    const values: Value[] = [];
    const node: Node = { id: this.nodes.length, op, domain, inputs, outputs: values, attributes };
    for (const output of outputs) {
      const { shape, dtype } = "shape" in output
        ? output
        : { shape: output, dtype: inputs[0]?.dtype ?? "f32" as const };
      checkElements(shape);
      values.push({ name: `${op}_${this.#names++}`, shape, dtype, node });
    }
    this.nodes.push(node);
    return values;
  }

  #one(
    op: string,
    inputs: readonly Value[],
    shape: readonly number[],
    attributes: Record<string, Attribute> = {},
    domain = "",
  ): Value {
    return this.node(op, inputs, [shape], attributes, domain)[0]!;
  }

  /** a + b */
  add(a: Value, b: Value): Value {
    return this.#one("Add", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a − b */
  sub(a: Value, b: Value): Value {
    return this.#one("Sub", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a · b, element by element */
  mul(a: Value, b: Value): Value {
    return this.#one("Mul", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** a ÷ b */
  div(a: Value, b: Value): Value {
    return this.#one("Div", [a, b], broadcastShape(a.shape, b.shape));
  }
  /** −a */
  neg(a: Value): Value {
    return this.#one("Neg", [a], a.shape);
  }
  /** e^a */
  exp(a: Value): Value {
    return this.#one("Exp", [a], a.shape);
  }
  /** ln a */
  log(a: Value): Value {
    return this.#one("Log", [a], a.shape);
  }
  /** √a */
  sqrt(a: Value): Value {
    return this.#one("Sqrt", [a], a.shape);
  }
  /** tanh a */
  tanh(a: Value): Value {
    return this.#one("Tanh", [a], a.shape);
  }
  /** erf a */
  erf(a: Value): Value {
    return this.#one("Erf", [a], a.shape);
  }
  /** 1 ÷ (1 + e^−a) */
  sigmoid(a: Value): Value {
    return this.#one("Sigmoid", [a], a.shape);
  }
  /** max(a, 0) */
  relu(a: Value): Value {
    return this.#one("Relu", [a], a.shape);
  }
  /** GELU: GPT-2's tanh approximation by default, or exact with erf. */
  gelu(a: Value, approximate: "tanh" | "none" = "tanh"): Value {
    return approximate === "tanh"
      ? this.#one("FastGelu", [a], a.shape, {}, MICROSOFT)
      : this.#one("Gelu", [a], a.shape, { approximate });
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
    return this.#one("Reshape", [a, this.#int64(shape)], shape);
  }
  /** Axes in another order. */
  transpose(a: Value, permutation: readonly number[]): Value {
    if (!sameShape([...permutation].sort((x, y) => x - y), a.shape.map((_, i) => i))) {
      throw new RangeError(
        `Cannot transpose: the permutation must name every axis of [${a.shape}] once, received [${permutation}]`,
      );
    }
    return this.#one("Transpose", [a], permutation.map((axis) => a.shape[axis]!), {
      perm: permutation,
    });
  }
  /** Repeats axes of size one. */
  expand(a: Value, shape: readonly number[]): Value {
    if (sameShape(a.shape, shape)) return a;
    if (!sameShape(broadcastShape(a.shape, shape), shape)) {
      throw new RangeError(`Cannot expand: [${a.shape}] must broadcast to [${shape}]`);
    }
    return this.#one("Expand", [a, this.#int64(shape)], shape);
  }
  /** `count` equal parts along an axis. */
  split(a: Value, axis: number, count: number): Value[] {
    const at = positiveAxis(axis, a.shape.length);
    if (a.shape[at]! % count !== 0) {
      throw new RangeError(
        `Cannot split: axis ${axis} of [${a.shape}] must divide by ${count}, received ${
          a.shape[at]
        }`,
      );
    }
    const part = a.shape.map((size, i) => i === at ? size / count : size);
    const outputs = Array.from({ length: count }, () => part);
    return this.node("Split", [a], outputs, { axis: at, num_outputs: count });
  }
  /** Joins tensors along an axis. */
  concat(values: readonly Value[], axis: number): Value {
    const first = values[0]!;
    const at = positiveAxis(axis, first.shape.length);
    const total = values.reduce((sum, value) => sum + value.shape[at]!, 0);
    return this.#one("Concat", values, first.shape.map((size, i) => i === at ? total : size), {
      axis: at,
    });
  }

  /** Batched matrix product of the last two axes. */
  matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1 } = options;
    const x = transposed(a.shape, transA), y = transposed(b.shape, transB);
    if (x.length < 2 || y.length < 2 || x.at(-1) !== y.at(-2)) {
      throw new RangeError(
        `Cannot multiply matrices: inner sizes must be equal, received [${x}] and [${y}]`,
      );
    }
    const shape = [...broadcastShape(x.slice(0, -2), y.slice(0, -2)), x.at(-2)!, y.at(-1)!];
    if (!transA && !transB && alpha === 1) return this.#one("MatMul", [a, b], shape);
    const attributes = { transA: +transA, transB: +transB, alpha: { float: alpha } };
    return this.#one("FusedMatMul", [a, b], shape, attributes, MICROSOFT);
  }
  /** Matrix product a·b + c of two-dimensional tensors; c broadcasts (a bias). */
  gemm(a: Value, b: Value, c?: Value, options: MatmulOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1 } = options;
    const x = transposed(a.shape, transA), y = transposed(b.shape, transB);
    if (x.length !== 2 || y.length !== 2 || x[1] !== y[0]) {
      throw new RangeError(
        `Cannot multiply matrices: inner sizes must be equal, received [${x}] and [${y}]`,
      );
    }
    const shape = [x[0]!, y[1]!];
    if (c && !sameShape(broadcastShape(c.shape, shape), shape)) {
      throw new RangeError(`Cannot add [${c.shape}] to a product: it must broadcast to [${shape}]`);
    }
    return this.#one("Gemm", c ? [a, b, c] : [a, b], shape, {
      transA: +transA,
      transB: +transB,
      alpha: { float: alpha },
    });
  }

  /** Softmax over an axis. */
  softmax(a: Value, axis = -1): Value {
    return this.#one("Softmax", [a], a.shape, { axis: positiveAxis(axis, a.shape.length) });
  }
  /** LayerNorm over the last axis (Ba, Kiros, Hinton 2016). */
  layerNorm(x: Value, weight: Value, bias: Value, epsilon = 1e-5): Value {
    const stats = { shape: [...x.shape.slice(0, -1), 1], dtype: "f32" as const };
    return this.node("LayerNormalization", [x, weight, bias], [x.shape, stats, stats], {
      axis: -1,
      epsilon: { float: epsilon },
    })[0]!;
  }
  /** Sum over axes, all by default. */
  sum(a: Value, axes: readonly number[] = a.shape.map((_, i) => i), keep = false): Value {
    return this.#reduce("ReduceSum", a, axes, keep);
  }
  /** Mean over axes, all by default. */
  mean(a: Value, axes: readonly number[] = a.shape.map((_, i) => i), keep = false): Value {
    return this.#reduce("ReduceMean", a, axes, keep);
  }
  /** Sum of squares over axes, all by default. */
  sumOfSquares(a: Value, axes: readonly number[] = a.shape.map((_, i) => i), keep = false): Value {
    return this.#reduce("ReduceSumSquare", a, axes, keep);
  }
  #reduce(op: string, a: Value, axes: readonly number[], keep: boolean): Value {
    const at = axes.map((axis) => positiveAxis(axis, a.shape.length));
    const shape = keep
      ? a.shape.map((size, i) => at.includes(i) ? 1 : size)
      : a.shape.filter((_, i) => !at.includes(i));
    return this.#one(op, [a, this.#int64(at)], shape, { keepdims: +keep });
  }

  /** Rows of a table by int32 index: [rows, ...] and [...n] give [...n, ...]. */
  gather(table: Value, indices: Value): Value {
    return this.#one("Gather", [table, indices], [...indices.shape, ...table.shape.slice(1)], {
      axis: 0,
    });
  }
  /** `base` with `updates` [n, ...] added to its rows `indices` [n]. */
  scatterAdd(base: Value, indices: Value, updates: Value): Value {
    const column = this.reshape(this.cast(indices, "i64"), [indices.shape[0]!, 1]);
    return this.#one("ScatterND", [base, column, updates], base.shape, { reduction: "add" });
  }
  /** `base` [n, k] with `updates` [n, 1] added to column `columns` [n] of each row. */
  scatterAddColumns(base: Value, columns: Value, updates: Value): Value {
    const at = this.reshape(columns, [columns.shape[0]!, 1]);
    return this.#one("ScatterElements", [base, at, updates], base.shape, {
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
    return this.node("SoftmaxCrossEntropyLoss", [logits, targets], [targets.shape, logits.shape], {
      reduction: "none",
      ignore_index: -1,
    })[0]!;
  }
}

/** ONNX's numbers of the element types. */
export const ONNX_DTYPE: Readonly<Record<DType, number>> = {
  f32: 1,
  i32: 6,
  i64: 7,
  bool: 9,
  f16: 10,
};
