/**
 * One order for every sum, whatever the GPU does first.
 *
 * [Note: the GPU's sums] What ONNX Runtime 1.30's kernels leave to chance, found in its library and its
 * source, and what is done about each:
 *
 * | where | what depends on the order of threads | here |
 * |---|---|---|
 * | ScatterND, ScatterElements that add | each update is an atomic addition | see [Note: one order of sums]; a loss adds one update to each row, which has no order |
 * | Gemm, MatMul, and Conv that is one, on GPUs of Intel | few elements of many terms: workgroups add parts of 256 terms to the result atomically (split-K) | such products are written in parts that it leaves whole |
 * | ReduceSum and its like, LayerNormalization, Softmax, other products | nothing: one thread adds an element, or one workgroup in a fixed tree | |
 *
 * The sum of an f16 product is made in f16. With u = 2^−11 a sum of n random terms is then off by about
 * u·√(n/6) of its size, and one of equal terms stands still after 1/u of them: so the terms of longer
 * products are added in parts of {@linkcode HALF_TERMS}, and the parts to each other.
 *
 * What all these choose from is the adapter, its driver, the release of the library, the shapes and
 * the types. So one adapter gives one result, run after run, and another may give other bits.
 *
 * @module
 */

import type { GraphProto } from "../../../onnx/onnx_pb.ts";
import { rewriteNodes } from "../../../onnx/graph_writer.ts";
import type { ValueType } from "../../../onnx/value_types.ts";
import { isPlain, type ProductSizes, sizesOf, writeInParts } from "./product_parts.ts";

/** Terms from which products are split, and the most that are. */
export const SPLIT_TERMS = { least: 512, most: 4096 } as const;

/** Up to so many terms a product is split that has at most so many elements for each term. */
const SPLIT_ELEMENTS: readonly (readonly [terms: number, elementsPerTerm: number])[] = [
  [768, 52],
  [2304, 35],
  [3072, 21.5],
  [SPLIT_TERMS.most, 16],
];

/** Terms that are added one after the other in f16. */
const HALF_TERMS = 1024;

/** Terms of a part; a multiple of four, which the kernels load at once. */
const PART_TERMS = SPLIT_TERMS.least - 4;

/** The most terms that are added at once. */
function mostTerms({ terms, elements }: ProductSizes, { dtype }: ValueType): number {
  const [, perTerm = 0] = SPLIT_ELEMENTS.find(([most]) => terms <= most) ?? [];
  if (terms >= SPLIT_TERMS.least && elements <= perTerm * terms) return PART_TERMS;
  return dtype === "f16" ? HALF_TERMS : Infinity;
}

/** Rewrites the products of a graph, in place, whose terms must not be added at once. */
export function orderSums(graph: GraphProto, types: ReadonlyMap<string, ValueType>): void {
  rewriteNodes(graph, types, "order", (node) => {
    const [a, b] = node.input.map((name) => types.get(name));
    const isProduct = (node.opType === "Gemm" || node.opType === "MatMul") && isPlain(node);
    if (!isProduct || !a || !b || a.shape.length < 2 || b.shape.length < 2) return undefined;
    const sizes = sizesOf(node, a, b), most = mostTerms(sizes, a);
    if (sizes.terms <= most) return undefined;
    return (write) => writeInParts(write, node, node.input, sizes, most, node.output[0]);
  });
}
