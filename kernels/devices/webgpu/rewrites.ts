/**
 * Rewrites of operations for which the WebGPU provider has no kernel, or an incorrect one.
 *
 * [Note: one order of sums] A ScatterND with addition would use atomic operations, in the order in which
 * the threads of a GPU run, where an index is repeated (as tokens are in a text). So rows of the same
 * index are added by a product first, whose order is fixed: with e[i][j] = 1 where the indices i and j
 * are equal, row i of e·updates is the sum of all updates for that index, with equal bits for every i
 * that has it. Each is added to its row of the base, and written there. If the base has no more rows
 * than there are updates, e[i][j] = 1 where index i is j, and eᵀ·updates is added to all of it. For n
 * updates of w numbers and a base of r rows these are 2·n·min(n, r)·w operations: 1.7 % of a GPT-2 of
 * 12 layers, 768 wide, at n = 8192, and at most half of those of its head, which has r columns. Values
 * that are not finite spread to other rows; such gradients are not used.
 *
 * @module
 */

import { cutOf, elementCount, positiveAxis } from "../../graph/shapes.ts";
import { MICROSOFT, ONNX_DTYPE, type ValueType } from "../../graph/value.ts";
import { constantNumbers } from "../../onnx/lower.ts";
import type { GraphProto, NodeProto } from "../../onnx/onnx_pb.ts";
import { arithmetic, type Rewrite, rewriteNodes, type Writer } from "../../onnx/rewrite.ts";
import { intOf, productOf, textOf } from "../../onnx/signature.ts";
import type { DType } from "../device.ts";
import {
  convolutionAsProduct,
  isLongProduct,
  misreadsThrees,
  mixesGroups,
  mixesInputs,
  oneMoreOutput,
  sumsOfColumns,
  wholeFours,
} from "./products.ts";

/** Known properties of a node's inputs. */
interface Operands {
  readonly types: readonly (ValueType | undefined)[];
  /** Returns the whole numbers of a constant input. */
  readonly numbers: (input: number) => readonly number[] | undefined;
}

/** π in parts; the first two have few digits, so that small multiples of them are exact. */
const PI_PARTS = [3.140625, 9.670257568359375e-4, 6.2771141529083252e-7];

/** Coefficients of x^3 .. x^11 in the series of the sine, exact to 6e-8 from −π/2 to π/2. */
const SINE_TERMS = [-1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800];

/**
 * The sine, and the cosine as the sine of x + π/2; the error of shaders may be 2^−11. With n·π the
 * multiple of π nearest to x, sin x = (−1)^n · sin(x − n·π).
 */
const sine = (shift: 0 | 0.5): Rewrite => (write, { input: [x], output: [y] }) => {
  const { add, sub, mul, scalar } = arithmetic(write);
  const turns = add(mul(x!, scalar(1 / Math.PI)), scalar(shift + 0.5));
  const n = write.node("Floor", [turns]), multiple = shift ? sub(n, scalar(shift)) : n;
  const r = PI_PARTS.reduce((rest, part) => sub(rest, mul(multiple, scalar(part))), x!);
  const r2 = mul(r, r);
  const series = SINE_TERMS.reduceRight<string | undefined>(
    (sum, term) => mul(r2, sum ? add(sum, scalar(term)) : scalar(term)),
    undefined,
  )!;
  const odd = sub(n, mul(write.node("Floor", [mul(n, scalar(0.5))]), scalar(2)));
  const sign = sub(scalar(1), mul(odd, scalar(2)));
  mul(sign, mul(r, add(series, scalar(1))), y);
};

const cast = (write: Writer, name: string, dtype: DType, output?: string) =>
  write.node("Cast", [name], { to: ONNX_DTYPE[dtype] }, output);

/** A power whose operands both have the shape of the result. */
const pow: Rewrite = (write, { input, output: [y] }) => {
  const shape = write.constant("i64", write.typeOf(y!).shape);
  write.node("Pow", input.map((name) => write.node("Expand", [name, shape])), {}, y);
};

/** 1 where x is positive, −1 where it is negative. */
const sign: Rewrite = (write, { input: [x], output: [y] }) => {
  const { sub, scalar } = arithmetic(write), zero = scalar(0);
  const isSo = (op: string) => cast(write, write.node(op, [x!, zero]), "f32");
  sub(isSo("Greater"), isSo("Less"), y);
};

/** Rounds to the nearest integer, halves to even. */
const round: Rewrite = (write, { input: [x], output: [y] }) => {
  const { add, sub, mul, scalar } = arithmetic(write), half = scalar(0.5);
  const down = write.node("Floor", [x!]), rest = sub(x!, down);
  const odd = sub(down, mul(write.node("Floor", [mul(down, half)]), scalar(2)));
  const isSo = (op: string) => cast(write, write.node(op, [rest, half]), "f32");
  add(down, add(isSo("Greater"), mul(isSo("Equal"), odd)), y);
};

const isNaN: Rewrite = (write, { input: [x], output: [y] }) =>
  void write.node("Not", [write.node("Equal", [x!, x!])], {}, y);

const or: Rewrite = (write, { input, output: [y] }) => {
  const neither = write.node("And", input.map((name) => write.node("Not", [name])));
  write.node("Not", [neither], {}, y);
};

const xor: Rewrite = (write, { input, output: [y] }) => {
  const whole = input.map((name) => cast(write, name, "i32"));
  write.node("Not", [write.node("Equal", whole)], {}, y);
};

/** Computes an operation on bools as integers. */
const asWhole = (isBool: boolean): Rewrite => (write, node) => {
  const [y] = node.output, whole = node.input.map((name) => cast(write, name, "i32"));
  if (isBool) write.again(whole, y);
  else cast(write, write.again(whole), "bool", y);
};

/** Slices by index, one axis after the other. */
const slice = ({ types: [x], numbers }: Operands): Rewrite => (write, node) => {
  const [starts, ends, axes, steps] = [1, 2, 3, 4].map(numbers), { shape } = x!;
  if (!starts || !ends || !axes) throw new Error("Slice must be along constant axes");
  axes.reduce((from, given, i) => {
    const axis = positiveAxis(given, shape.length);
    const cut = cutOf(shape[axis]!, starts[i]!, ends[i]!, steps?.[i] ?? 1);
    const places = Array.from({ length: cut.count }, (_, k) => cut.start + k * cut.step);
    const to = i === axes.length - 1 ? node.output[0] : undefined;
    return write.node("Gather", [from, write.constant("i32", places)], { axis }, to);
  }, node.input[0]!);
};

/** Outputs of an operation with one input: every adapter binds eight buffers at a time. */
const MAX_OUTPUTS = 7;

/** Splits into few parts, which are split again. */
const splitAgain: Rewrite = (write, node) => {
  const at = positiveAxis(intOf(node, "axis", 0), write.typeOf(node.input[0]!).shape.length);
  const lengthOf = (names: readonly string[]) =>
    names.reduce((sum, name) => sum + write.typeOf(name).shape[at]!, 0);
  const cut = (from: string, outputs: readonly string[]) => {
    let step = 1;
    while (step * MAX_OUTPUTS < outputs.length) step *= MAX_OUTPUTS;
    const parts = Array.from(
      { length: Math.ceil(outputs.length / step) },
      (_, i) => outputs.slice(i * step, (i + 1) * step),
    );
    const names = parts.map((part) => part.length === 1 ? part[0]! : `${step}.${part[0]}`);
    write.nodes("Split", [from, write.constant("i64", parts.map(lengthOf))], { axis: at }, names);
    parts.forEach((part, i) => part.length > 1 && cut(names[i]!, part));
  };
  cut(node.input[0]!, node.output);
};

/**
 * A ScatterElements with addition, where an index may be repeated along the axis; see [Note: one order
 * of sums]. For each place of the axis its updates are added.
 */
const scatterElements: Rewrite = (write, node) => {
  const [base, indices, updates] = node.input as [string, string, string], [y] = node.output;
  const { shape, dtype } = write.typeOf(base), { shape: given } = write.typeOf(indices);
  const axis = positiveAxis(intOf(node, "axis", 0), shape.length), size = shape[axis]!;
  const apart = (name: string) => arithmetic(write).reshape(name, given.toSpliced(axis, 0, 1));
  const places = Array.from({ length: size }, (_, i) => i);
  const across = write.constant("i32", places, [size, ...given.slice(axis).map(() => 1)]);
  const isFor = write.node("Equal", [apart(cast(write, indices, "i32")), across]);
  const zero = write.constant(dtype, [0], []);
  const own = write.node("Where", [isFor, apart(updates), zero]);
  const sum = write.node("ReduceSum", [own, write.constant("i64", [axis + 1])], { keepdims: 0 });
  const rest = shape.map((own, i) => i === axis ? 0 : own - given[i]!);
  const pads = write.constant("i64", [...rest.map(() => 0), ...rest]);
  const whole = rest.every((width) => width === 0) ? sum : write.node("Pad", [sum, pads]);
  write.node("Add", [base, whole], {}, y);
};

/** Updates of a scatter that are compared with all others at a time. */
const ROWS = 1024;

const fusedMatMul: Rewrite = (write, node) => {
  const [a, b] = node.input as [string, string], [y] = node.output;
  const typeA = write.typeOf(a), typeB = write.typeOf(b);
  const { alpha, transA, transB } = productOf(node, typeA, typeB);
  if (typeA.shape.length === 2 && typeB.shape.length === 2) {
    write.node("Gemm", [a, b], { transA, transB, alpha: { float: alpha } }, y);
    return;
  }
  const transposed = (name: string, { shape: { length: rank } }: ValueType, output?: string) => {
    const perm = Array.from({ length: rank }, (_, i) => i < rank - 2 ? i : 2 * rank - 3 - i);
    return write.node("Transpose", [name], { perm }, output);
  };
  const typeY = write.typeOf(y!);
  const sizeOf = ({ shape }: ValueType) => elementCount(shape);
  const sizeA = sizeOf(typeA), sizeB = sizeOf(typeB), sizeY = sizeOf(typeY);
  // y = l·r is also the transpose of rᵀ·lᵀ, which may move fewer elements: the matrix of an attention
  // from each token to each other is large.
  const moved = transA * sizeA + transB * sizeB;
  const isTurned = moved > (1 - transA) * sizeA + (1 - transB) * sizeB + sizeY;
  let left = transA === +isTurned ? a : transposed(a, typeA);
  let right = transB === +isTurned ? b : transposed(b, typeB);
  if (alpha !== 1) {
    const factor = write.constant(typeA.dtype, [alpha], []);
    // The product is linear in both operands: the smaller one is scaled.
    if (sizeA <= sizeB) left = write.node("Mul", [left, factor]);
    else right = write.node("Mul", [right, factor]);
  }
  if (isTurned) transposed(write.node("MatMul", [right, left]), typeY, y);
  else write.node("MatMul", [left, right], {}, y);
};

/** ln softmax x = (x − m) − ln Σ e^(x − m), where m is the largest x. */
const logSoftmax: Rewrite = (write, node) => {
  const [x] = node.input as [string], axes = write.constant("i64", [intOf(node, "axis", -1)]);
  const shifted = write.node("Sub", [x, write.node("ReduceMax", [x, axes], { keepdims: 1 })]);
  const sum = write.node("ReduceSum", [write.node("Exp", [shifted]), axes], { keepdims: 1 });
  write.node("Sub", [shifted, write.node("Log", [sum])], {}, node.output[0]);
};

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

/** Splits `count` rows into ranges. */
const partsOf = (count: number) =>
  range(0, Math.ceil(count / ROWS)).map((i) =>
    [i * ROWS, Math.min((i + 1) * ROWS, count)] as const
  );

/**
 * Adds updates to rows; see [Note: one order of sums]. Indices are [n, 1]. The base may be f16 with
 * updates in f32: then each sum is computed in f32 and rounded.
 */
const scatterAdd: Rewrite = (write, node) => {
  const [base, indices, updates] = node.input as [string, string, string], [y] = node.output;
  const [count = 0] = write.typeOf(indices).shape, { shape, dtype } = write.typeOf(updates);
  const { shape: whole, dtype: stored } = write.typeOf(base), [height = 0] = whole;
  const converted = (name: string, to: DType, from: DType) =>
    from === to ? name : cast(write, name, to);
  const { reshape } = arithmetic(write);
  const flat = reshape(updates, [count, elementCount(shape.slice(1))]);
  const rows = cast(write, reshape(indices, [count]), "i32");
  /** Returns 1 where the indices of rows `from` to `to` equal those of `across`, otherwise 0. */
  const equalRows = ([from, to]: readonly [number, number], across: string) => {
    // There is no kernel that slices i32.
    const places = write.constant("i32", range(from, to), [to - from, 1]);
    const down = write.node("Gather", [rows, places], { axis: 0 });
    return cast(write, write.node("Equal", [down, across]), dtype);
  };
  if (height <= count) {
    const across = write.constant("i32", range(0, height), [1, height]);
    const total = partsOf(count).reduce<string | undefined>((sum, part) => {
      const some = write.node("Slice", [flat, ...part.map((end) => write.constant("i64", [end]))]);
      const equal = equalRows(part, across);
      return write.node("Gemm", sum ? [equal, some, sum] : [equal, some], { transA: 1 });
    }, undefined)!;
    const sum = [converted(base, dtype, stored), reshape(total, whole)];
    if (dtype === stored) write.node("Add", sum, {}, y);
    else cast(write, write.node("Add", sum), stored, y);
    return;
  }
  const across = reshape(rows, [1, count]);
  const sums = partsOf(count).map((part) => write.node("MatMul", [equalRows(part, across), flat]));
  const sum = sums.length === 1 ? sums[0]! : write.node("Concat", sums, { axis: 0 });
  const before = converted(write.node("Gather", [base, rows], { axis: 0 }), dtype, stored);
  const after = converted(write.node("Add", [before, reshape(sum, shape)]), stored, dtype);
  write.node("ScatterND", [base, indices, after], {}, y);
};

/** Returns whether a node adds updates to whole rows: indices are [n, 1]. */
export function isRowAddition(node: NodeProto, indices: ValueType | undefined): boolean {
  return node.opType === "ScatterND" && textOf(node, "reduction") === "add" &&
    indices?.shape.length === 2 && indices.shape[1] === 1;
}

/** Rewrites by operation, with the domain as prefix if there is one. */
const REWRITES: Readonly<
  Record<string, (node: NodeProto, operands: Operands) => Rewrite | undefined>
> = {
  Sin: () => sine(0),
  Cos: () => sine(0.5),
  // It fails for a row or a column of exponents.
  Pow: (_, { types: [, b] }) =>
    b && (elementCount(b.shape) > 1 || b.shape.length > 1) ? pow : undefined,
  Sign: (_, { types: [x] }) => x?.dtype === "f32" ? sign : undefined,
  Round: () => round,
  IsNaN: () => isNaN,
  // For a mask that is passed on unchanged.
  Identity: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(false) : undefined,
  Or: () => or,
  Xor: () => xor,
  Equal: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(true) : undefined,
  Concat: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(false) : undefined,
  Transpose: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(false) : undefined,
  Split: ({ output }) => output.length > MAX_OUTPUTS ? splitAgain : undefined,
  // With negative steps the first element may be wrong.
  Slice: (_, operands) => {
    const isBackwards = operands.numbers(4)?.some((step) => step < 0);
    const isWhole = ["i32", "i64", "bool"].includes(operands.types[0]?.dtype ?? "");
    return isBackwards || isWhole ? slice(operands) : undefined;
  },
  ScatterElements: (node, { types: [x, indices] }) => {
    const axis = x && positiveAxis(intOf(node, "axis", 0), x.shape.length);
    const isOne = axis === undefined || indices?.shape[axis] === 1;
    return textOf(node, "reduction") === "add" && !isOne ? scatterElements : undefined;
  },
  [`${MICROSOFT}.FusedMatMul`]: () => fusedMatMul,
  Conv: (node, { types }) =>
    isLongProduct(node, types)
      ? convolutionAsProduct
      : mixesGroups(node, types[1])
      ? wholeFours
      : misreadsThrees(node, types)
      ? oneMoreOutput(0)
      : undefined,
  ConvTranspose: (node, { types: [, weight] }) =>
    mixesInputs(node, weight) ? oneMoreOutput(1) : undefined,
  LogSoftmax: () => logSoftmax,
  ReduceSum: (node, { types: [x], numbers }) => {
    const isOfColumns = x?.dtype === "f32" && x.shape.length === 2 && `${numbers(1)}` === "0";
    return isOfColumns && intOf(node, "keepdims", 1) === 0 ? sumsOfColumns(x.shape[0]!) : undefined;
  },
  ScatterND: (node, { types: [, indices] }) =>
    isRowAddition(node, indices) ? scatterAdd : undefined,
};

/**
 * Rewrites the nodes of a graph in place.
 *
 * @throws {Error} when an operation has an unsupported form.
 */
export function rewriteGraph(graph: GraphProto, types: ReadonlyMap<string, ValueType>): void {
  const numbersOf = constantNumbers(graph);
  rewriteNodes(graph, types, "webgpu", (node) => {
    const op = node.domain ? `${node.domain}.${node.opType}` : node.opType ?? "";
    return REWRITES[op]?.(node, {
      types: node.input.map((name) => types.get(name)),
      numbers: numbersOf(node),
    });
  });
}
