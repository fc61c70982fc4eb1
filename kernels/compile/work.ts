/**
 * Estimated work of layers, for cuts of models into stages.
 *
 * [Note: one estimate for all devices] A cut must not depend on the machine, since plans of memory and
 * the shards of checkpoints follow it. Relative to their products, devices differ in the time of
 * element-wise ops (wasm computes a GELU in the time of 45 operations of a product, native in that of
 * 80), but these ops take at most a sixth of the time: numbers between the two give cuts within a few
 * percent of the best for each. A test compares them with measured times.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import type { FusedOp, Node, Value } from "../graph/value.ts";

/** The cost of most ops: one pass over memory. */
const PASS_COST = 20;

/** Operations of a large matrix product in the time that an op takes for one element. */
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
    RoundBf16: PASS_COST,
    AdamW: 100,
  } satisfies Record<FusedOp, number>,
};
/** Operations without cost: they change nothing, or are removed on compilation. */
const FREE_OPS = new Set(["Reshape", "Expand", "Identity"]);

/** Operations that touch only the rows named by their other inputs. */
const ROW_OPS = new Set(["Gather", "GatherElements", "ScatterND", "ScatterElements"]);

/** Factor of products of many small matrices, as in attention, relative to one of large ones. */
const SMALL_PRODUCTS = 1.15;

/** Factor of the gradient of a convolution's weight, whose windows are copied side by side. */
const WINDOW_PRODUCTS = 1.5;

/** Returns the estimated work of nodes, in floating-point operations of a large matrix product. */
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

/** Returns the work of a convolution or its gradients: the products of the weight and each window. */
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
