/**
 * Products of many terms, added in parts.
 *
 * @module
 */

import type { NodeProto } from "../../../onnx/onnx_pb.ts";
import type { Writer } from "../../../onnx/graph_writer.ts";
import { floatOf, intOf, type ValueType } from "../../../onnx/value_types.ts";

/** The sizes of a product of matrices, and where the axis lies along which terms are added. */
export interface ProductSizes {
  /** Terms of each element. */
  readonly terms: number;
  /** Elements of the result. */
  readonly elements: number;
  /** The axis of the terms in the first operand and in the second. */
  readonly axes: readonly [number, number];
}

/** The sizes of a MatMul or Gemm from the shapes of its operands. */
export function sizesOf(node: NodeProto, a: ValueType, b: ValueType): ProductSizes {
  const transA = intOf(node, "transA", 0), transB = intOf(node, "transB", 0);
  const [rankA, rankB] = [a.shape.length, b.shape.length];
  const axes = [rankA - 1 - transA, rankB - 2 + transB] as const;
  const columns = b.shape[rankB - 1 - transB]!, rows = a.shape[rankA - 2 + transA]!;
  const batch = Math.max(
    ...[a, b].map(({ shape }) => shape.slice(0, -2).reduce((x, y) => x * y, 1)),
  );
  return { terms: a.shape[axes[0]]!, elements: batch * rows * columns, axes };
}

/** Whether the third operand of a product is just added: then it may be added to the sum of parts. */
export const isPlain = (node: NodeProto): boolean => floatOf(node, "beta", 1) === 1;

/**
 * Writes a product in parts of at most `most` terms, which are added one after the other; a third
 * operand is added to the sum of all.
 */
export function writeInParts(
  write: Writer,
  node: NodeProto,
  operands: readonly string[],
  { terms, axes }: ProductSizes,
  most: number,
  output: string | undefined,
): void {
  const [a, b, c] = operands as [string, string, string?];
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
}
