/**
 * Small operations that the WebGPU provider has no kernel for, or not for every dtype, or none that is
 * near enough.
 *
 * @module
 */

import { cutOf, elementCount, positiveAxis } from "../../../graph/shapes.ts";
import { ONNX_DTYPE } from "../../../graph/value.ts";
import { arithmetic } from "../../../onnx/fused_ops.ts";
import type { Rewrite, Writer } from "../../../onnx/graph_writer.ts";
import type { NodeProto } from "../../../onnx/onnx_pb.ts";
import { intOf, textOf, type ValueType } from "../../../onnx/value_types.ts";

/** What is known of the inputs of a node. */
export interface Operands {
  readonly types: readonly (ValueType | undefined)[];
  /** The whole numbers of a constant input. */
  readonly numbers: (input: number) => readonly number[] | undefined;
}

/** π in parts of which the first two have few digits, so that small multiples of them are exact. */
const PI_PARTS = [3.140625, 9.670257568359375e-4, 6.2771141529083252e-7];

/** The terms x^3 .. x^11 of the series of the sine, which is good to 6e-8 from −π/2 to π/2. */
const SINE_TERMS = [-1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800];

/**
 * The sine, and the cosine as that of x + π/2; shaders may be off by 2^−11. With the multiple n·π that is
 * nearest to x, sin x = (−1)^n · sin(x − n·π).
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

const cast = (write: Writer, name: string, dtype: keyof typeof ONNX_DTYPE, output?: string) =>
  write.node("Cast", [name], { to: ONNX_DTYPE[dtype] }, output);

/** A power of which both operands have the shape of the result. */
const pow: Rewrite = (write, { input, output: [y] }) => {
  const shape = write.constant("i64", write.typeOf(y!).shape);
  write.node("Pow", input.map((name) => write.node("Expand", [name, shape])), {}, y);
};

/** 1 where x is positive, less 1 where it is negative. */
const sign: Rewrite = (write, { input: [x], output: [y] }) => {
  const { sub, scalar } = arithmetic(write), zero = scalar(0);
  const isSo = (op: string) => cast(write, write.node(op, [x!, zero]), "f32");
  sub(isSo("Greater"), isSo("Less"), y);
};

/** What is more than a half is rounded up, and a half where that gives an even number. */
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

/** On bools as whole numbers. */
const asWhole = (isBool: boolean): Rewrite => (write, node) => {
  const [y] = node.output, whole = node.input.map((name) => cast(write, name, "i32"));
  if (isBool) write.again(whole, y);
  else cast(write, write.again(whole), "bool", y);
};

/** A slice by index, one axis after the other. */
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

/**
 * A ScatterElements that adds, where an index may stand twice along the axis; see [Note: one order of
 * sums]. Of each place of the axis the updates that are for it are added to it.
 */
const scatterElements: Rewrite = (write, node) => {
  const [base, indices, updates] = node.input as [string, string, string], [y] = node.output;
  const { shape, dtype } = write.typeOf(base), { shape: given } = write.typeOf(indices);
  const axis = positiveAxis(intOf(node, "axis", 0), shape.length), size = shape[axis]!;
  const apart = (name: string) =>
    write.node("Reshape", [name, write.constant("i64", given.toSpliced(axis, 0, 1))]);
  const places = Array.from({ length: size }, (_, i) => i);
  const across = write.constant("i32", places, [size, ...given.slice(axis).map(() => 1)]);
  const isFor = write.node("Equal", [apart(cast(write, indices, "i32")), across]);
  const zero = write.constant(dtype as "f32", [0], []);
  const own = write.node("Where", [isFor, apart(updates), zero]);
  const sum = write.node("ReduceSum", [own, write.constant("i64", [axis + 1])], { keepdims: 0 });
  const rest = shape.map((own, i) => i === axis ? 0 : own - given[i]!);
  const pads = write.constant("i64", [...rest.map(() => 0), ...rest]);
  const whole = rest.every((width) => width === 0) ? sum : write.node("Pad", [sum, pads]);
  write.node("Add", [base, whole], {}, y);
};

/** What takes the place of a node, by its operation. */
export const MISSING: Readonly<
  Record<string, (node: NodeProto, operands: Operands) => Rewrite | undefined>
> = {
  Sin: () => sine(0),
  Cos: () => sine(0.5),
  // Of a row or a column of exponents it ends in an error.
  Pow: (_, { types: [, b] }) =>
    b && (elementCount(b.shape) > 1 || b.shape.length > 1) ? pow : undefined,
  Sign: (_, { types: [x] }) => x?.dtype === "f32" ? sign : undefined,
  Round: () => round,
  IsNaN: () => isNaN,
  // Of a mask that is handed on as it came.
  Identity: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(false) : undefined,
  Or: () => or,
  Xor: () => xor,
  Equal: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(true) : undefined,
  Concat: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(false) : undefined,
  Transpose: (_, { types: [x] }) => x?.dtype === "bool" ? asWhole(false) : undefined,
  // Backwards the first element is not always the right one.
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
};
