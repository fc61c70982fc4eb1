/**
 * How much work a layer is, by which models are cut into stages.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import type { Node } from "../graph/value.ts";

/** One element of an element-wise op takes about as long as this many operations of a product. */
const ELEMENT_COST = 25;
const FREE_OPS = new Set(["Reshape", "Expand", "Identity"]);

/** Estimated floating-point operations of some nodes. */
export function workOf(nodes: readonly Node[]): number {
  return nodes.reduce((sum, { op, inputs, outputs, attributes }) => {
    if (FREE_OPS.has(op)) return sum;
    const elements = elementCount(outputs[0]!.shape);
    if (!["MatMul", "FusedMatMul", "Gemm"].includes(op)) return sum + elements * ELEMENT_COST;
    const inner = inputs[0]!.shape.at(attributes.transA === 1 ? -2 : -1)!;
    return sum + 2 * elements * inner;
  }, 0);
}
