/**
 * One order for every sum, whatever the GPU does first.
 *
 * [Note: the GPU's sums] What ONNX Runtime 1.30's kernels leave to chance, found in its library and its
 * source, and what is done about each:
 *
 * | where | what depends on the order of threads | here |
 * |---|---|---|
 * | ScatterND, ScatterElements that add | each update is an atomic addition | see [Note: one order of sums]; a loss adds one update to each row, which has no order |
 * | Gemm, MatMul on GPUs of Intel | few elements of many terms: workgroups add parts of 256 terms to the result atomically (split-K) | such products are written in parts that it leaves whole |
 * | ReduceSum and its like, LayerNormalization, Softmax, other products | nothing: one thread adds an element, or one workgroup in a fixed tree | |
 *
 * What all these choose from is the adapter, its driver, the release of the library, the shapes and
 * the types. So one adapter gives one result, run after run, and another may give other bits.
 *
 * @module
 */

import type { GraphProto, NodeProto } from "../../../onnx/onnx_pb.ts";
import { rewriteNodes } from "./graph_writer.ts";
import type { ValueType } from "./model_shapes.ts";
import { isPlain, type ProductSizes, sizesOf, writeInParts } from "./product_parts.ts";

/** Terms from which products are split, and the most that are. */
const SPLIT_TERMS = { least: 512, most: 4096 } as const;

/** Up to so many terms a product is split that has at most so many elements for each term. */
const SPLIT_ELEMENTS: readonly (readonly [terms: number, elementsPerTerm: number])[] = [
  [768, 52],
  [2304, 35],
  [3072, 21.5],
  [SPLIT_TERMS.most, 16],
];

/** Terms of a part; a multiple of four, which the kernels load at once. */
const PART_TERMS = SPLIT_TERMS.least - 4;

function maySplit({ terms, elements }: ProductSizes): boolean {
  const [, perTerm = 0] = SPLIT_ELEMENTS.find(([most]) => terms <= most) ?? [];
  return terms >= SPLIT_TERMS.least && elements <= perTerm * terms;
}

/** Rewrites the products of a graph, in place, whose terms a GPU might add in any order. */
export function orderSums(graph: GraphProto, types: ReadonlyMap<string, ValueType>): void {
  const sizes = (node: NodeProto) => {
    const [a, b] = node.input.map((name) => types.get(name));
    return a && b && a.shape.length >= 2 && b.shape.length >= 2 ? sizesOf(node, a, b) : undefined;
  };
  rewriteNodes(graph, types, "order", (node) => {
    if (node.opType !== "Gemm" && node.opType !== "MatMul") return undefined;
    const found = sizes(node);
    if (!found || !maySplit(found) || !isPlain(node)) return undefined;
    return (write) => writeInParts(write, node, node.input, found, PART_TERMS, node.output[0]);
  });
}
