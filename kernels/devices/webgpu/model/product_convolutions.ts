/**
 * Convolutions that are products of matrices: of windows of one element, or as large as the image.
 *
 * The provider computes them as such, and on GPUs of Intel adds parts of products of many terms in the
 * order of threads: see [Note: the GPU's sums]. Those are written as products, so that what is said
 * there holds for them too.
 *
 * @module
 */

import { elementCount, sameShape } from "../../../graph/shapes.ts";
import type { NodeProto } from "../../../onnx/onnx_pb.ts";
import type { Rewrite } from "../../../onnx/graph_writer.ts";
import { intOf, type ValueType } from "../../../onnx/value_types.ts";
import { windowsOfProto } from "../../../onnx/window_rules.ts";
import { SPLIT_TERMS } from "./sum_order.ts";

/** Whether a convolution is a product of so many terms that its sums might have no order. */
export function isLongProduct(
  node: NodeProto,
  [x, weight]: readonly (ValueType | undefined)[],
): boolean {
  if (!x || !weight || intOf(node, "group", 1) !== 1) return false;
  const [, ...terms] = weight.shape, [, , ...sizes] = x.shape;
  const { kernel, strides, pads } = windowsOfProto(node, sizes, weight.shape.slice(2));
  const isAlone = elementCount(kernel) === 1 && strides.every((stride) => stride === 1);
  return (isAlone || sameShape(kernel, sizes)) && pads.every((pad) => pad === 0) &&
    elementCount(terms) >= SPLIT_TERMS.least;
}

/** The weight, a row for each output, times what stands in each window. */
export const convolutionAsProduct: Rewrite = (write, node) => {
  const [x, weight, bias] = node.input as [string, string, string?], [y] = node.output as [string];
  const [outputs = 0, ...terms] = write.typeOf(weight).shape, { shape } = write.typeOf(y);
  const [n = 0, , ...counts] = shape, inner = elementCount(terms);
  const reshaped = (of: string, to: readonly number[], output?: string) =>
    write.node("Reshape", [of, write.constant("i64", to)], {}, output);
  const product = write.node("MatMul", [
    reshaped(weight, [outputs, inner]),
    reshaped(x, [n, inner, elementCount(counts)]),
  ]);
  if (!bias) return void reshaped(product, shape, y);
  reshaped(write.node("Add", [product, reshaped(bias, [outputs, 1])]), shape, y);
};
