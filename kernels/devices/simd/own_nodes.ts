/**
 * The nodes of a model that our own kernels compute, and how.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import { type FusedOp, MICROSOFT, TROUPE } from "../../graph/value.ts";
import type { NodeProto } from "../../onnx/onnx_pb.ts";
import { floatOf, intOf, type ValueType } from "../../onnx/value_types.ts";
import { ownGemm, ownMatMul } from "./own_products.ts";
import type { Address, KernelName } from "./load_kernels.ts";
import type { OwnCall, OwnNode } from "./own_call.ts";

/** A kernel that takes the number of elements first. */
const elementwise = (name: KernelName): OwnNode => (_, [{ shape }]) => {
  const count = elementCount(shape);
  return { run: (kernels, inputs, outputs) => kernels[name](count, ...inputs, ...outputs) };
};

/** The rows of a shape, and their length. */
function rowsOf(shape: readonly number[]): [rows: number, columns: number] {
  return [elementCount(shape.slice(0, -1)), shape.at(-1)!];
}

/** A kernel that takes rows and columns first, and computes row by row. */
const byRow = (name: KernelName): OwnNode => (_, [{ shape }]) => {
  const rows = rowsOf(shape);
  return { run: (kernels, inputs, outputs) => kernels[name](...rows, ...inputs, ...outputs) };
};

const isLast = (node: NodeProto, { shape }: ValueType) =>
  [-1, shape.length - 1].includes(intOf(node, "axis", -1));

/** A kernel of rows, where the last axis is meant. */
const byLastAxis = (name: KernelName): OwnNode => (node, types) =>
  isLast(node, types[0]) ? byRow(name)(node, types) : undefined;

const adamw: OwnNode = (node, [{ shape }]) => {
  const count = elementCount(shape);
  const factors = ["beta1", "rest1", "beta2", "rest2"].map((name) => floatOf(node, name, 0));
  return {
    run: (kernels, inputs, outputs) => kernels.adamw(count, ...inputs, ...outputs, ...factors),
  };
};

/** An address for each output, where the last ones are optional. */
const padded = (outputs: readonly Address[], count: number) =>
  Array.from({ length: count }, (_, i) => outputs[i] ?? 0);

const layerNorm: OwnNode = (node, types) => {
  const [{ shape }] = types, epsilon = floatOf(node, "epsilon", 1e-5);
  if (!isLast(node, types[0])) return undefined;
  return {
    run: (kernels, inputs, outputs) =>
      kernels.layerNorm(...rowsOf(shape), ...padded(inputs, 3), ...padded(outputs, 3), epsilon),
  };
};

const layerNormWeightGrad: OwnNode = (_, [{ shape }]) => ({
  run: (kernels, inputs, outputs) =>
    kernels.layerNormWeightGrad(...rowsOf(shape), ...inputs, ...padded(outputs, 2)),
});

/** The loss of each row. */
const crossEntropy: OwnNode = (_, [{ shape }, targets]) => {
  if (targets?.dtype !== "i32") return undefined;
  const rows = rowsOf(shape);
  return {
    run: (kernels, inputs, outputs) => kernels.crossEntropy(...rows, ...inputs, ...outputs),
  };
};

/** Of one input: one with a bias is another operation. */
const gelu: OwnNode = (node, types) =>
  node.input.length === 1 ? elementwise("gelu")(node, types) : undefined;

/** Of all elements of a row: one over some of several axes is not ours. */
const sumOfSquares: OwnNode = (_, [{ shape }]) => {
  const [count] = shape;
  if (shape.length !== 1) return undefined;
  return { run: (kernels, [x], [sum]) => kernels.sumOfSquares(count!, x!, sum!) };
};

const FUSED: Readonly<Partial<Record<FusedOp, OwnNode>>> = {
  AdamW: adamw,
  CrossEntropy: crossEntropy,
  FastGeluGrad: elementwise("geluGrad"),
  LayerNormInputGrad: byRow("layerNormInputGrad"),
  LayerNormWeightGrad: layerNormWeightGrad,
  SoftmaxGrad: byRow("softmaxGrad"),
};

const OWN: Readonly<Record<string, Readonly<Record<string, OwnNode>>>> = {
  [TROUPE]: FUSED,
  [MICROSOFT]: { FastGelu: gelu, FusedMatMul: ownMatMul },
  "": {
    Gemm: ownGemm,
    LayerNormalization: layerNorm,
    LogSoftmax: byLastAxis("logSoftmax"),
    MatMul: ownMatMul,
    ReduceSumSquare: sumOfSquares,
    Softmax: byLastAxis("softmax"),
  },
};

/** What of our operations stays in a model that is compiled with our kernels. */
export const KEPT = Object.fromEntries(
  Object.keys(FUSED).map((op) => [op, "keep"]),
) as Readonly<Partial<Record<FusedOp, "keep">>>;

/** How our kernels compute a node; undefined where they do not, or a type is not known. */
export function ownCall(
  node: NodeProto,
  types: ReadonlyMap<string, ValueType>,
): OwnCall | undefined {
  const own = OWN[node.domain ?? ""]?.[node.opType ?? ""];
  const [first, ...rest] = node.input.map((name) => types.get(name));
  if (!own || first?.dtype !== "f32" || rest.includes(undefined)) return undefined;
  return own(node, [first, ...rest as ValueType[]]);
}
