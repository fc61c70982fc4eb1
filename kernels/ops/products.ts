/**
 * Products of matrices, and sums of products by named axes.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import {
  broadcastShape,
  elementCount,
  type Ints,
  productShape,
  sameShape,
} from "../graph/shapes.ts";
import { MICROSOFT, numberOf, type Settings, textOf, TROUPE, type Value } from "../graph/value.ts";
import { arithmetic } from "../onnx/rewrite.ts";
import { floatOf, intOf } from "../onnx/signature.ts";
import { broadcastStrides, type NdArray, ndArray, positions, wide } from "./array.ts";
import type { Builder } from "./builder.ts";
import {
  type GradientRule,
  isSet,
  like,
  type Methods,
  one,
  type Op,
  operands,
  type Ops,
  shaped,
} from "./op.ts";

/** Returns the operands of a product that are transposed, and its factor. */
const formOf = (node: Settings) => ({
  transA: isSet(node, "transA"),
  transB: isSet(node, "transB"),
  alpha: numberOf(node, "alpha", 1),
});

/** Returns the matrix and the factors of its rows whose product is `dy`, if it is one. */
function scaledRows(dy: Value): { readonly rows: Value; readonly factors: Value } | undefined {
  const [rows, factors] = dy.node?.op === "Mul" ? dy.node.inputs as [Value, Value] : [];
  const isScaled = rows && factors && sameShape(rows.shape, dy.shape) &&
    sameShape(factors.shape, [dy.shape[0]!, 1]);
  return isScaled ? { rows, factors } : undefined;
}

/**
 * y = α·op(a)·op(b) + β·c: da = α·dy·op(b)ᵀ, db = α·op(a)ᵀ·dy, each transposed back if needed. If a
 * gradient has factors of its rows and is wider than `a`, such as that of logits, `a` is multiplied
 * by them instead.
 */
const gradient: GradientRule = (g, node, [dy]) => {
  const [a, b] = node.inputs as [Value, Value];
  const { transA: ta, transB: tb, alpha } = formOf(node);
  const multiply = (x: Value, y: Value, transA: boolean, transB: boolean) =>
    node.op === "Gemm"
      ? g.gemm(x, y, undefined, { transA, transB, alpha })
      : g.matmul(x, y, { transA, transB, alpha });
  const scaled = !ta && dy!.shape[1]! > a.shape[1]! ? scaledRows(dy!) : undefined;
  const dRows = scaled?.rows ?? dy!, toRows = (x: Value) => scaled ? g.mul(x, scaled.factors) : x;
  const da = () => ta ? multiply(b, dRows, tb, true) : toRows(multiply(dRows, b, false, !tb));
  const db = () =>
    tb ? multiply(dRows, toRows(a), true, ta) : multiply(toRows(a), dRows, !ta, false);
  const beta = numberOf(node, "beta", 1), dc = () => beta === 1 ? dy! : g.mul(dy!, g.scalar(beta));
  return [da, db, dc];
};

/** Multiplies the last two axes, with sums in f64. */
function products(a: NdArray, b: NdArray, node: Settings, shape: Ints): Float64Array {
  const { transA, transB, alpha } = formOf(node), batch = shape.slice(0, -2);
  const [rows, columns] = shape.slice(-2) as [number, number];
  const inner = a.shape.at(transA ? -2 : -1)!, sums = new Float64Array(elementCount(shape));
  const matrices = ({ shape }: NdArray, isTurned: boolean) => {
    const [height, width] = shape.slice(-2) as [number, number];
    const first = positions(batch, broadcastStrides(shape.slice(0, -2), batch));
    return {
      first: first.map((place) => place * height * width),
      row: isTurned ? 1 : width,
      column: isTurned ? width : 1,
    };
  };
  const x = matrices(a, transA), y = matrices(b, transB);
  for (let matrix = 0; matrix < x.first.length; matrix++) {
    for (let i = 0; i < rows; i++) {
      for (let k = 0; k < inner; k++) {
        const left = a.values[x.first[matrix]! + i * x.row + k * x.column]!;
        const right = y.first[matrix]! + k * y.row, to = (matrix * rows + i) * columns;
        for (let j = 0; j < columns; j++) sums[to + j]! += left * b.values[right + j * y.column]!;
      }
    }
  }
  return sums.map((sum) => alpha * sum);
}

const matmul: Op = {
  shape: (known) => {
    const [a, b] = known.inputs;
    return shaped(known, productShape(a!.shape, b!.shape, formOf(known)));
  },
  gradient,
  reference: ([a, b], node, [y]) => ndArray(y, products(a, b!, node, y.shape)),
};

/** Products of matrices. */
export const PRODUCTS: Ops = {
  MatMul: {
    ...matmul,
    // With one matrix for all of a batch it is one product, and so are its gradients.
    read: (call) => {
      const { g } = call, [a, b] = operands(call, 2);
      if (a.shape.length < 2 || b.shape.length !== 2) return g.matmul(a, b);
      const rows = g.reshape(a, [elementCount(a.shape.slice(0, -1)), a.shape.at(-1)!]);
      return g.reshape(g.gemm(rows, b), [...a.shape.slice(0, -1), b.shape[1]!]);
    },
  },
  [`${MICROSOFT}.FusedMatMul`]: {
    ...matmul,
    read: (call) => call.g.matmul(...operands(call, 2), formOf(call)),
    lower: (write, node) => {
      const [a, b] = ["transA", "transB"].map((name, i) => {
        const operand = node.input[i]!, { length } = write.typeOf(operand).shape;
        if (intOf(node, name, 0) === 0) return operand;
        const perm = Array.from({ length }, (_, i) => i < length - 2 ? i : 2 * length - 3 - i);
        return write.node("Transpose", [operand], { perm });
      }) as [string, string];
      const alpha = write.constant("f32", [floatOf(node, "alpha", 1)], []);
      write.node("Mul", [write.node("MatMul", [a, b]), alpha], {}, node.output[0]);
    },
  },
  Gemm: {
    ...matmul,
    reference: ([a, b, c], node, [y]) => {
      const sums = products(a, b!, node, y.shape), beta = numberOf(node, "beta", 1);
      const added = c && wide(c.values, positions(y.shape, broadcastStrides(c.shape, y.shape)));
      return ndArray(y, sums.map((sum, i) => sum + (added ? beta * added[i]! : 0)));
    },
    read: (call) =>
      call.g.gemm(...operands(call, 2), call.inputs[2], {
        ...formOf(call),
        beta: numberOf(call, "beta", 1),
      }),
  },
  [`${TROUPE}.RoundBf16`]: {
    shape: like(0),
    // With s = 2¹⁶ + 1, s·x − (s·x − x) keeps 8 of the 24 bits of x (Veltkamp); |x| must be below 2¹¹¹.
    lower: (write, { input: [x], output: [rounded] }) => {
      const { sub, mul, scalar } = arithmetic(write), scaled = mul(x!, scalar(2 ** 16 + 1));
      sub(scaled, sub(scaled, x!), rounded);
    },
  },
  Einsum: {
    read: (call) => call.g.einsum(textOf(call, "equation", ""), call.inputs as readonly Value[]),
  },
};

/** A tensor whose axes have names of one letter. */
interface Named {
  readonly value: Value;
  readonly axes: string;
}

/** Sums over the axes that no other operand and no later one has. */
function summed(g: Builder, { value, axes }: Named, other: string, wanted: ReadonlySet<string>) {
  const isKept = (axis: string) => wanted.has(axis) || other.includes(axis);
  const gone = [...axes].flatMap((axis, i) => isKept(axis) ? [] : [i]);
  return { value: g.sum(value, gone), axes: [...axes].filter(isKept).join("") };
}

const ordered = (g: Builder, { value, axes }: Named, order: string): Value =>
  axes === order ? value : g.transpose(value, [...order].map((axis) => axes.indexOf(axis)));

function productOf(g: Builder, a: Named, given: Named, wanted: ReadonlySet<string>): Named {
  const b = summed(g, given, a.axes, wanted);
  const only = (of: Named, test: (axis: string) => boolean) => [...of.axes].filter(test).join("");
  const batch = only(a, (axis) => b.axes.includes(axis) && wanted.has(axis));
  const inner = only(a, (axis) => b.axes.includes(axis) && !wanted.has(axis));
  const rows = only(a, (axis) => !b.axes.includes(axis));
  const columns = only(b, (axis) => !a.axes.includes(axis));
  const sizes = new Map(
    [a, b].flatMap(({ axes, value }) =>
      [...axes].map((axis, i) => [axis, value.shape[i]!] as const)
    ),
  );
  const shape = (axes: string) => [...axes].map((axis) => sizes.get(axis)!);
  const matrices = (of: Named, ...parts: readonly [string, string]) =>
    g.reshape(ordered(g, of, batch + parts.join("")), [
      ...shape(batch),
      ...parts.map((part) => elementCount(shape(part))),
    ]);
  const product = g.matmul(matrices(a, rows, inner), matrices(b, inner, columns));
  const axes = batch + rows + columns;
  return { value: g.reshape(product, shape(axes)), axes };
}

/** Largest number of multiplied tensors. */
const OPERANDS_MAX = 20;

function checkEquation(
  equation: string,
  named: readonly Named[],
  operands: readonly Value[],
  result: string,
): void {
  const sizes = new Map<string, number>();
  const fits = ({ axes, value }: Named) =>
    value !== undefined && /^[a-zA-Z]*$/.test(axes) && new Set(axes).size === axes.length &&
    axes.length === value.shape.length &&
    [...axes].every((axis, i) => {
      const size = sizes.get(axis) ?? value.shape[i]!;
      sizes.set(axis, size);
      return size === value.shape[i];
    });
  const isWhole = named.length === operands.length && named.length <= OPERANDS_MAX &&
    named.every(fits) && new Set(result).size === result.length &&
    [...result].every((axis) => sizes.has(axis));
  if (isWhole) return;
  const shapes = operands.slice(0, OPERANDS_MAX).map(({ shape }) => `[${shape}]`).join(" and ");
  const must =
    `its letters must name the axes of ${shapes}, each once in an operand and of one size`;
  const most = `without "...", for at most ${OPERANDS_MAX} operands`;
  throw new SyntaxError(`Cannot multiply by "${equation.slice(0, 200)}": ${must}, ${most}`);
}

/** Returns whether a product has no terms, whose sum ONNX Runtime leaves as it was in memory. */
const isEmpty = (a: Value, b: Value) => elementCount(a.shape) * elementCount(b.shape) === 0;

/** Methods that add products. */
export const PRODUCT_METHODS: Methods = {
  matmul: (g, a, b, options = {}) => {
    const { transA = false, transB = false, alpha = 1 } = options;
    const isRow = a.shape.length === 1, isColumn = b.shape.length === 1;
    if (isRow || isColumn) {
      const row = isRow ? g.reshape(a, [1, ...a.shape]) : a;
      const column = isColumn ? g.reshape(b, [...b.shape, 1]) : b;
      const turned = { transA: transA && !isRow, transB: transB && !isColumn, alpha };
      const product = g.matmul(row, column, turned), rank = product.shape.length;
      const gone = [...isRow ? [rank - 2] : [], ...isColumn ? [rank - 1] : []];
      return g.reshape(product, product.shape.filter((_, axis) => !gone.includes(axis)));
    }
    const shape = productShape(a.shape, b.shape, { transA, transB });
    if (isEmpty(a, b)) return g.expand(g.scalar(0, a.dtype), shape);
    if (!transA && !transB && alpha === 1) return one(g, PRODUCTS, "MatMul", [a, b]);
    const attributes = { transA: +transA, transB: +transB, alpha: { float: alpha } };
    return one(g, PRODUCTS, `${MICROSOFT}.FusedMatMul`, [a, b], attributes);
  },
  gemm: (g, a, b, c, options = {}) => {
    const { transA = false, transB = false, alpha = 1, beta = 1 } = options;
    const shape = productShape(a.shape, b.shape, { transA, transB }, "two");
    const isBroadcast = !c || sameShape(broadcastShape(c.shape, shape), shape);
    assertInput(isBroadcast, "add to a product", `c must broadcast to [${shape}]`, `[${c?.shape}]`);
    if (isEmpty(a, b)) return g.expand(c ? g.mul(c, beta) : g.scalar(0, a.dtype), shape);
    return one(g, PRODUCTS, "Gemm", c ? [a, b, c] : [a, b], {
      transA: +transA,
      transB: +transB,
      alpha: { float: alpha },
      ...beta !== 1 && { beta: { float: beta } },
    });
  },
  einsum: (g, equation, operands) => {
    const [left = "", given] = equation.replaceAll(" ", "").split("->");
    const named = left.split(",").map((axes, i): Named => ({ axes, value: operands[i]! }));
    const once = [...new Set(left.replaceAll(",", ""))].filter((axis) =>
      left.split(axis).length === 2
    );
    const axes = given ?? once.toSorted().join("");
    checkEquation(equation, named, operands, axes);
    const [first, ...rest] = named as [Named, ...Named[]];
    const all = rest.reduce((product, other, i) => {
      const wanted = new Set([axes, ...rest.slice(i + 1).map((later) => later.axes)].join(""));
      return productOf(g, summed(g, product, other.axes, wanted), other, wanted);
    }, first);
    return ordered(g, summed(g, all, "", new Set(axes)), axes);
  },
};
