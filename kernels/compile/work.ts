/**
 * How much work a layer is, by which models are cut into stages.
 *
 * [Note: one estimate for all devices] A cut must not depend on the machine, as plans of memory and
 * the shards of checkpoints follow it. Element for element a device takes longer or shorter for an
 * op beside its products (wasm computes a GELU in the time of 45 operations of a product, native in
 * that of 80), but these ops are a sixth of the time at most: numbers between the two give cuts that
 * are within a few percent of the best for each. A test holds them to measured times.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import type { FusedOp, Node, Value } from "../graph/value.ts";

/** Operations of a large matrix product in the time that an op takes for an element. */
const ELEMENT_COSTS: Readonly<Record<string, number>> = {
  Gather: 150,
  ScatterND: 150,
  LayerNormalization: 40,
  SimplifiedLayerNormalization: 40,
  FastGelu: 65,
  Gelu: 65,
  QuickGelu: 65,
  Softmax: 65,
  AveragePool: 130,
  ...{
    FastGeluGrad: 90,
    SoftmaxGrad: 50,
    LayerNormInputGrad: 90,
    LayerNormWeightGrad: 40,
    ConvWeightGrad: 0, // a product, see below
    MaxPoolGrad: 300,
    CrossEntropy: 40,
    AdamW: 100,
  } satisfies Record<FusedOp, number>,
};
/** Of all other ops: one pass over memory. */
const PASS_COST = 20;

/** They change nothing, or are gone when the model is compiled. */
const FREE_OPS = new Set(["Reshape", "Expand", "Identity"]);

/** They touch the rows that are named by their other inputs, not all of the first. */
const ROW_OPS = new Set(["Gather", "GatherElements", "ScatterND", "ScatterElements"]);

/** Products of many small matrices, as in attention, are this much slower than one of large ones. */
const SMALL_PRODUCTS = 1.15;

/** The gradient of a convolution's weight is slower than one product, as windows are laid side by side. */
const WINDOW_PRODUCTS = 1.5;

/** Estimated work of some nodes, in floating-point operations of a large matrix product. */
export function workOf(nodes: readonly Node[]): number {
  return nodes.reduce((sum, node) => sum + workOfNode(node), 0);
}

function workOfNode({ op, inputs, outputs, attributes }: Node): number {
  if (FREE_OPS.has(op)) return 0;
  if (op === "Gemm" || op === "MatMul" || op === "FusedMatMul") {
    const inner = inputs[0]!.shape.at(attributes.transA === 1 ? -2 : -1)!;
    const operations = 2 * elementCount(outputs[0]!.shape) * inner;
    return outputs[0]!.shape.length > 2 ? SMALL_PRODUCTS * operations : operations;
  }
  const products = convolutionWork(op, inputs, outputs);
  if (products !== undefined) return products;
  const touched = op.startsWith("Gather") ? [...inputs.slice(1), ...outputs] : inputs.slice(1);
  const tensors = ROW_OPS.has(op) ? touched : [...inputs, ...outputs];
  return (ELEMENT_COSTS[op] ?? PASS_COST) * largest(tensors);
}

/** Of the products of a convolution or one of its gradients: those of a weight with each window. */
function convolutionWork(
  op: string,
  [first, second]: readonly Value[],
  [output]: readonly Value[],
): number | undefined {
  const operations = (weight: Value, narrow: Value) =>
    2 * elementCount(weight.shape) * elementCount(narrow.shape) / narrow.shape[1]!;
  if (op === "Conv") return operations(second!, output!);
  if (op === "ConvTranspose") return operations(second!, first!);
  return op === "ConvWeightGrad" ? WINDOW_PRODUCTS * operations(output!, first!) : undefined;
}

const largest = (values: readonly Value[]): number =>
  Math.max(...values.map(({ shape }) => elementCount(shape)));
