/**
 * How much work a layer is, by which models are cut into stages.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import { type FusedOp, type Node, TROUPE } from "../graph/value.ts";

/** One element of an element-wise op takes about as long as this many operations of a product. */
const ELEMENT_COST = 25;
const FREE_OPS = new Set(["Reshape", "Expand", "Identity"]);

/** Of our operations: how many operations of ONNX it takes for each element of its largest input. */
const FUSED_OPERATIONS: Readonly<Record<FusedOp, number>> = {
  FastGeluGrad: 16,
  SoftmaxGrad: 3,
  LayerNormInputGrad: 8,
  LayerNormWeightGrad: 3,
  CrossEntropyGrad: 3,
  AdamW: 14,
};

/** Estimated floating-point operations of some nodes. */
export function workOf(nodes: readonly Node[]): number {
  return nodes.reduce((sum, { op, domain, inputs, outputs, attributes }) => {
    if (FREE_OPS.has(op)) return sum;
    if (domain === TROUPE) {
      const largest = Math.max(...inputs.map(({ shape }) => elementCount(shape)));
      return sum + FUSED_OPERATIONS[op as FusedOp] * largest * ELEMENT_COST;
    }
    const elements = elementCount(outputs[0]!.shape);
    if (!["MatMul", "FusedMatMul", "Gemm"].includes(op)) return sum + elements * ELEMENT_COST;
    const inner = inputs[0]!.shape.at(attributes.transA === 1 ? -2 : -1)!;
    return sum + 2 * elements * inner;
  }, 0);
}
