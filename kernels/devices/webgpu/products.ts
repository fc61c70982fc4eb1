/**
 * Rewrites convolutions and products of matrices that the provider computes wrongly or in no fixed
 * order.
 *
 * Convolutions with windows of one element, or as large as the image, are products. The provider
 * computes them as products, and on Intel GPUs adds parts of products with many terms in the order of
 * threads: see [Note: the GPU's sums]. They are written as products, so that the note applies to them.
 *
 * [Note: groups of four] The provider's kernel of a grouped convolution computes four outputs at a time,
 * or two, if the number of all outputs is divisible by that and a group has at least four. If the outputs
 * of one group are not divisible, four outputs of two groups are computed as if they were of one group.
 * The kernel of a transposed convolution reads two or four inputs at a time if a group has one output,
 * and then uses the weights of other groups. (ONNX Runtime 1.30, found by comparing sizes.) So groups get
 * additional outputs of weight zero until they are divisible, which are cut off afterwards.
 *
 * Without groups, the kernel of a convolution computes four outputs at a time if their number is divisible
 * by four and that of the inputs by four or three. If it is not divisible by four, inputs after the third
 * are read from wrong places (issue 29651 of ONNX Runtime). So there is one more output.
 *
 * [Note: the GPU's sums] Nondeterministic operations of ONNX Runtime 1.30's kernels, found in its library
 * and its source, and their treatment:
 *
 * | where | what depends on the order of threads | here |
 * |---|---|---|
 * | ScatterND, ScatterElements that add | each update is an atomic addition | see [Note: one order of sums]; a loss adds one update to each row, which has no order |
 * | Gemm, MatMul, and Conv that is one, on GPUs of Intel | few elements of many terms: workgroups add parts of 256 terms to the result atomically (split-K) | such products are written in parts that it leaves whole |
 * | ReduceSum and its like, LayerNormalization, Softmax, other products | nothing: one thread adds an element, or one workgroup in a fixed tree | |
 *
 * The sum of an f16 product is computed in f16. With u = 2^−11, a sum of n random terms has a relative
 * error of about u·√(n/6), and a sum of equal terms stops growing after 1/u terms: so the terms of longer
 * products are added in parts of {@linkcode HALF_TERMS}, and then the parts are added.
 *
 * These choices depend on the adapter, its driver, the release of the library, the shapes and the types.
 * So an adapter has the same result in every run, and another adapter may have other bits.
 *
 * @module
 */

import {
  elementCount,
  sameShape,
  unreadBehind,
  windowAttributes,
  windowCounts,
} from "../../graph/shapes.ts";
import { ONNX_DTYPE, type ValueType } from "../../graph/value.ts";
import type { GraphProto, NodeProto } from "../../onnx/onnx_pb.ts";
import { arithmetic, type Rewrite, rewriteNodes, type Writer } from "../../onnx/rewrite.ts";
import { floatOf, intOf, productOf } from "../../onnx/signature.ts";
import { windowsOfProto } from "../../ops/windows.ts";

/** Outputs that are computed at a time. */
const FOUR = 4;

/** Types of the operands of a node, where they are known. */
type OperandTypes = readonly (ValueType | undefined)[];

const groupsOf = (node: NodeProto) => intOf(node, "group", 1);

/** Returns whether outputs of several groups would be computed at the same time. */
export function mixesGroups(node: NodeProto, weight: ValueType | undefined): boolean {
  const groups = groupsOf(node), [outputs = 0] = weight?.shape ?? [], own = outputs / groups;
  const together = [FOUR, 2].find((count) => outputs % count === 0) ?? 1;
  return groups > 1 && own >= FOUR && own % together !== 0;
}

/** Returns whether a transposed convolution would read the weights of other inputs. */
export function mixesInputs(node: NodeProto, weight: ValueType | undefined): boolean {
  const groups = groupsOf(node), [inputs = 0, own = 0] = weight?.shape ?? [];
  return groups > 1 && own === 1 && inputs > groups;
}

/** Returns whether a convolution would read inputs from wrong places. */
export function misreadsThrees(node: NodeProto, operands: OperandTypes): boolean {
  const [outputs = 0, inputs = 0] = operands[1]?.shape ?? [];
  return groupsOf(node) === 1 && outputs % FOUR === 0 && inputs > 3 && inputs % 3 === 0 &&
    inputs % FOUR !== 0 && !isProduct(node, operands);
}

/** Cuts the outputs of each group from `wide` to the first `own`, and adds the bias. */
function cutOff(
  write: Writer,
  node: NodeProto,
  found: string,
  [own, wide]: readonly [number, number],
): void {
  const [, , bias] = node.input, [y] = node.output as [string];
  const { shape } = write.typeOf(y), [n = 0, outputs = 0, ...sizes] = shape;
  const { reshape } = arithmetic(write);
  const apart = reshape(found, [n, groupsOf(node), wide, elementCount(sizes)]);
  const ends = [0, own, 2].map((number) => write.constant("i64", [number]));
  const kept = write.node("Slice", [apart, ...ends]);
  if (!bias) return void reshape(kept, shape, y);
  const perChannel = reshape(bias, [outputs, ...sizes.map(() => 1)]);
  write.node("Add", [reshape(kept, shape), perChannel], {}, y);
}

/** Extends a weight along an axis with outputs of zeros. */
function widened(
  write: Writer,
  weight: string,
  axis: number,
  count: number,
  as: readonly number[],
) {
  const shape = as.map((size, i) => i === axis ? count : size);
  const dtype = write.typeOf(weight).dtype;
  const zeros = write.constant(dtype, Array<number>(elementCount(shape)).fill(0), shape);
  const matrix = arithmetic(write).reshape(weight, as);
  return write.node("Concat", [matrix, zeros], { axis });
}

/** Widens each group to a multiple of four outputs; see {@linkcode mixesGroups}. */
export const wholeFours: Rewrite = (write, node) => {
  const [x, weight] = node.input as [string, string], groups = groupsOf(node);
  const [outputs = 0, ...rest] = write.typeOf(weight).shape, own = outputs / groups;
  const wide = Math.ceil(own / FOUR) * FOUR;
  const wider = widened(write, weight, 1, wide - own, [groups, own, elementCount(rest)]);
  const widest = arithmetic(write).reshape(wider, [groups * wide, ...rest]);
  cutOff(write, node, write.again([x, widest]), [own, wide]);
};

/** Computes one more output, of zeros; `axis` is that of the outputs in the weight. */
export const oneMoreOutput = (axis: number): Rewrite => (write, node) => {
  const [x, weight] = node.input as [string, string], { shape } = write.typeOf(weight);
  const own = shape[axis]!, wider = widened(write, weight, axis, 1, shape);
  cutOff(write, node, write.again([x, wider]), [own, own + 1]);
};

/**
 * Sums of columns as products with ones: ReduceSum would copy the transpose of the whole matrix first.
 * The terms are added in two products where one would have too many for a fixed order.
 *
 * @returns undefined if the number of rows cannot be divided so.
 */
export function sumsOfColumns(rows: number): Rewrite | undefined {
  let groups = Math.max(1, Math.ceil(rows / PART_TERMS));
  while (rows % groups > 0) groups++;
  if (groups > PART_TERMS) return undefined;
  return (write, node) => {
    const [x] = node.input as [string], [, columns = 0] = write.typeOf(x).shape;
    const { reshape } = arithmetic(write);
    const sum = (of: string, count: number) =>
      write.node("MatMul", [write.constant("f32", Array(count).fill(1), [1, count]), of]);
    const first = rows / groups;
    const sums = sum(groups === 1 ? x : reshape(x, [first, groups * columns]), first);
    const total = groups === 1 ? sums : sum(reshape(sums, [groups, columns]), groups);
    reshape(total, [columns], node.output[0]);
  };
}

/** With s = 1/(1 + e^−z), z = 2c(x + 0.044715x³): y' = s·(1 + (1 − s)·x·z'), x·z' = 3z − 4cx. */
export const geluGrad: Rewrite = (write, { input: [dy, x], output: [dx] }) => {
  const { add, sub, mul, scalar } = arithmetic(write), c2 = 2 * Math.sqrt(2 / Math.PI);
  const square = mul(mul(x!, x!), scalar(c2 * 0.044715));
  const z = mul(x!, add(square, scalar(c2))), s = write.node("Sigmoid", [z]);
  const slope = sub(mul(z, scalar(3)), mul(x!, scalar(2 * c2)));
  mul(dy!, mul(s, add(mul(slope, sub(scalar(1), s)), scalar(1))), dx);
};

/** Less than every number outside the padding. */
const PADDING = -3.4e38;

/** Returns a square matrix, row by row. */
const matrix = (size: number, entry: (row: number, column: number) => boolean) =>
  Array.from({ length: size * size }, (_, i) => +entry(Math.floor(i / size), i % size));

/** Gradient of MaxPool: each window's gradient goes to its first largest element. */
export const maxPoolGrad: Rewrite = (write, node) => {
  const [dy, x] = node.input as [string, string], { shape } = write.typeOf(x);
  const [n = 0, channels = 0, ...sizes] = shape, windows = windowsOfProto(node, sizes);
  const counts = windowCounts(sizes, windows), all = elementCount(counts), { kernel } = windows;
  const k = elementCount(kernel), images = n * channels, rank = sizes.length;
  const { reshape, scalar } = arithmetic(write);
  const one = matrix(k, (row, column) => row === column);
  const select = write.constant("f32", one, [k, 1, ...kernel]);
  const largest = reshape(write.node("MaxPool", [x], windowAttributes(windows)), [images, 1, all]);
  const pads = [0, 0, ...windows.pads.slice(0, rank), 0, 0, ...windows.pads.slice(rank)];
  const around = [write.constant("i64", pads), scalar(PADDING)];
  const padded = write.node("Pad", [reshape(x, [images, 1, ...sizes]), ...around]);
  const inside = windowAttributes({ ...windows, pads: windows.pads.map(() => 0) });
  const beside = reshape(write.node("Conv", [padded, select], inside), [images, k, all]);
  const cast = (of: string) => write.node("Cast", [of], { to: ONNX_DTYPE.f32 });
  const equal = cast(write.node("Equal", [beside, largest]));
  const earlier = write.constant("f32", matrix(k, (row, column) => column < row), [k, k]);
  const isFirst = write.node("Less", [write.node("MatMul", [earlier, equal]), scalar(0.5)]);
  const marks = write.node("Mul", [equal, cast(isFirst)]);
  const moved = write.node("Mul", [marks, reshape(dy, [images, 1, all])]);
  const spread = write.node("ConvTranspose", [reshape(moved, [images, k, ...counts]), select], {
    ...windowAttributes(windows),
    output_padding: unreadBehind(sizes, windows),
  });
  reshape(spread, shape, node.output[0]);
};

/** Returns the sizes of a MatMul or Gemm from the shapes of its operands. */
function sizesOf(node: NodeProto, a: ValueType, b: ValueType) {
  const { m, n, k, transA, transB } = productOf(node, a, b);
  const batch = Math.max(...[a, b].map(({ shape }) => elementCount(shape.slice(0, -2))));
  return {
    /** Number of terms of each element. */
    terms: k,
    /** Number of elements of the result. */
    elements: batch * m * n,
    /** The axis of the terms in the first and the second operand. */
    axes: [a.shape.length - 1 - transA, b.shape.length - 2 + transB] as const,
  };
}

type ProductSizes = ReturnType<typeof sizesOf>;

/**
 * A product in parts of at most `most` terms, which are added in order; a third operand is added to the
 * sum of all.
 */
const inParts = ({ terms, axes }: ProductSizes, most: number): Rewrite => (write, node) => {
  const [a, b, c] = node.input as [string, string, string?], [output] = node.output;
  const part = (name: string, axis: number, from: number) => {
    const [start, end, along] = [from, Math.min(from + most, terms), axis].map((number) =>
      write.constant("i64", [number])
    ) as [string, string, string];
    return write.node("Slice", [name, start, end, along]);
  };
  let sum: string | undefined;
  for (let from = 0; from < terms; from += most) {
    const parts = [part(a, axes[0], from), part(b, axes[1], from)];
    const name = from + most >= terms && !c ? output : undefined;
    if (!sum) sum = write.again(parts, name);
    else if (node.opType === "Gemm") sum = write.again([...parts, sum], name);
    else sum = write.node("Add", [sum, write.again(parts)], {}, name);
  }
  if (c) write.node("Add", [sum!, c], {}, output);
};

/** The range of terms in which products are split. */
const SPLIT_TERMS = { least: 512, most: 4096 } as const;

/** Largest number of elements per term of products that are split, by their number of terms. */
const SPLIT_ELEMENTS: readonly (readonly [terms: number, elementsPerTerm: number])[] = [
  [768, 52],
  [2304, 35],
  [3072, 21.5],
  [SPLIT_TERMS.most, 16],
];

/** Largest number of terms that are added in f16. */
const HALF_TERMS = 1024;

/** Terms of a part; a multiple of four, which the kernels load at a time. */
const PART_TERMS = SPLIT_TERMS.least - 4;

/** Returns the largest number of terms of a part. */
function mostTerms({ terms, elements }: ProductSizes, { dtype }: ValueType): number {
  const [, perTerm = 0] = SPLIT_ELEMENTS.find(([most]) => terms <= most) ?? [];
  if (terms >= SPLIT_TERMS.least && elements <= perTerm * terms) return PART_TERMS;
  return dtype === "f16" ? HALF_TERMS : Infinity;
}

/** Splits the products of a graph, in place, whose terms must not be added in one sum. */
export function orderSums(graph: GraphProto, types: ReadonlyMap<string, ValueType>): void {
  rewriteNodes(graph, types, "order", (node) => {
    const [a, b] = node.input.map((name) => types.get(name));
    // Its third operand is only added, so it may be added to the sum of parts.
    const isPlain = floatOf(node, "beta", 1) === 1;
    const isProduct = (node.opType === "Gemm" || node.opType === "MatMul") && isPlain;
    if (!isProduct || !a || !b || a.shape.length < 2 || b.shape.length < 2) return undefined;
    const sizes = sizesOf(node, a, b), most = mostTerms(sizes, a);
    return sizes.terms > most ? inParts(sizes, most) : undefined;
  });
}

/** Returns whether a convolution is a product. */
function isProduct(node: NodeProto, [x, weight]: OperandTypes): boolean {
  if (!x || !weight || groupsOf(node) !== 1) return false;
  const [, , ...sizes] = x.shape;
  const { kernel, strides, pads } = windowsOfProto(node, sizes, weight.shape.slice(2));
  const isAlone = elementCount(kernel) === 1 && strides.every((stride) => stride === 1);
  return (isAlone || sameShape(kernel, sizes)) && pads.every((pad) => pad === 0);
}

/** Returns whether a convolution is a product whose number of terms allows unordered sums. */
export const isLongProduct = (node: NodeProto, operands: OperandTypes): boolean =>
  isProduct(node, operands) && elementCount(operands[1]!.shape.slice(1)) >= SPLIT_TERMS.least;

/** The weight, a row for each output, times the elements of each window. */
export const convolutionAsProduct: Rewrite = (write, node) => {
  const [x, weight, bias] = node.input as [string, string, string?], [y] = node.output as [string];
  const [outputs = 0, ...terms] = write.typeOf(weight).shape, { shape } = write.typeOf(y);
  const [n = 0, , ...counts] = shape, inner = elementCount(terms);
  const { reshape } = arithmetic(write);
  const product = write.node("MatMul", [
    reshape(weight, [outputs, inner]),
    reshape(x, [n, inner, elementCount(counts)]),
  ]);
  if (!bias) return void reshape(product, shape, y);
  reshape(write.node("Add", [product, reshape(bias, [outputs, 1])]), shape, y);
};
