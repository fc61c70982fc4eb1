/**
 * The nodes of a model that our own kernels compute, and how.
 *
 * @module
 */

import { elementCount, sameShape } from "../../graph/shapes.ts";
import { type FusedOp, MICROSOFT, TROUPE } from "../../graph/value.ts";
import type { NodeProto } from "../../onnx/onnx_pb.ts";
import { floatOf, intOf, type ValueType } from "../../onnx/value_types.ts";
import { KERNELS_MODULE } from "./simd_module.ts";

/** The address of an array in the memory. */
type Address = number;

/** The kernels; `source/` says what each computes, and of which numbers and addresses. */
export type KernelName =
  | "adamw"
  | "crossEntropy"
  | "dropoutMask"
  | "gelu"
  | "geluGrad"
  | "gemm"
  | "layerNorm"
  | "layerNormInputGrad"
  | "layerNormWeightGrad"
  | "logSoftmax"
  | "normals"
  | "softmax"
  | "softmaxGrad"
  | "sumOfSquares"
  | "zero";

/** The kernels over one memory. */
export type SimdKernels = Readonly<Record<KernelName, (...given: readonly number[]) => void>>;

let module: WebAssembly.Module | undefined;

/**
 * The kernels over a memory.
 *
 * @param memory shared, of up to 4 GiB.
 */
export function loadKernels(memory: WebAssembly.Memory): SimdKernels {
  module ??= new WebAssembly.Module(Uint8Array.fromBase64(KERNELS_MODULE));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return exports as unknown as SimdKernels;
}

/** Numbers that are drawn at once, at most. */
export const CHANCE_MAX = 16_384;

/** Where they lie; before them is room for the state of a generator. */
export const CHANCE_VALUES = 16;

const PAGE_BYTES = 65_536;

let opened: { readonly memory: WebAssembly.Memory; readonly kernels: SimdKernels } | undefined;

/** The kernels over a memory of their own, one in each isolate. */
export function chanceKernels(): NonNullable<typeof opened> {
  if (opened) return opened;
  const initial = Math.ceil((CHANCE_VALUES + 4 * CHANCE_MAX) / PAGE_BYTES);
  const memory = new WebAssembly.Memory({ initial, maximum: PAGE_BYTES, shared: true });
  return opened = { memory, kernels: loadKernels(memory) };
}

/** A node that is computed by a kernel of ours. */
export interface OwnCall {
  /** Bytes of working memory that it takes. */
  readonly workBytes?: number;
  /** Computes it once its inputs and outputs have addresses, in the node's order. */
  readonly run: (
    kernels: SimdKernels,
    inputs: readonly Address[],
    outputs: readonly Address[],
    work: Address,
  ) => void;
}

/** How a node is computed, given the types of its inputs; undefined where it is not. */
type OwnNode = (
  node: NodeProto,
  types: readonly [ValueType, ...ValueType[]],
) => OwnCall | undefined;

/** Bytes of working memory of a product: what `gemm.as` copies, and a tile. */
const WORK_BYTES = 4 * (256 * (128 + 504) + 4 * 12);

/** Two matrices as they lie, whose product is wanted. */
interface Factors {
  /** Sizes of the first: rows and columns. */
  readonly a: readonly [number, number];
  readonly b: readonly [number, number];
  readonly isATransposed: boolean;
  readonly isBTransposed: boolean;
}

/** What the kernel takes: sizes, then elements between rows and columns of each factor. */
function layoutOf({ a, b, isATransposed, isBTransposed }: Factors) {
  const [m, k] = isATransposed ? [a[1], a[0]] : a, n = isBTransposed ? b[0] : b[1];
  const steps = (columns: number, isTransposed: boolean) =>
    (isTransposed ? [1, columns] : [columns, 1]) as [number, number];
  return { m, n, k, a: steps(a[1], isATransposed), b: steps(b[1], isBTransposed) };
}

const isTransposed = (node: NodeProto, name: string) => intOf(node, name, 0) === 1;

const matrix = (shape: readonly number[]) => shape.slice(-2) as [number, number];

/** α·a·b + c, where c is a row, as large as the product, or left out. */
const ownGemm: OwnNode = (node, [a, b, c]) => {
  const alpha = floatOf(node, "alpha", 1);
  const { m, n, k, ...steps } = layoutOf({
    a: matrix(a!.shape),
    b: matrix(b!.shape),
    isATransposed: isTransposed(node, "transA"),
    isBTransposed: isTransposed(node, "transB"),
  });
  const isRow = c && c.shape.at(-1) === n && elementCount(c.shape) === n;
  if (c && !isRow && !sameShape(c.shape, [m, n])) return undefined;
  if (c && floatOf(node, "beta", 1) !== 1) return undefined;
  const cRow = isRow && m > 1 ? 0 : n;
  return {
    workBytes: WORK_BYTES,
    run: (kernels, inputs, [y], work) =>
      kernels.gemm(
        m,
        n,
        k,
        inputs[0]!,
        ...steps.a,
        inputs[1]!,
        ...steps.b,
        inputs[2] ?? 0,
        cRow,
        y!,
        alpha,
        work,
      ),
  };
};

/** Products of the matrices in the last two axes; the other axes are alike, or the second has none. */
const ownMatMul: OwnNode = (node, [a, b]) => {
  const batch = a!.shape.slice(0, -2), alpha = floatOf(node, "alpha", 1);
  const isPlain = ["transBatchA", "transBatchB"].every((name) => !isTransposed(node, name));
  if (!isPlain || a!.shape.length < 2 || !sameShape(batch, b!.shape.slice(0, -2))) return undefined;
  const { m, n, k, ...steps } = layoutOf({
    a: matrix(a!.shape),
    b: matrix(b!.shape),
    isATransposed: isTransposed(node, "transA"),
    isBTransposed: isTransposed(node, "transB"),
  });
  const count = elementCount(batch);
  return {
    workBytes: WORK_BYTES,
    run(kernels, [atA, atB], [y], work) {
      for (let i = 0; i < count; i++) {
        const from = [atA! + 4 * m * k * i, atB! + 4 * k * n * i] as const;
        kernels.gemm(
          m,
          n,
          k,
          from[0],
          ...steps.a,
          from[1],
          ...steps.b,
          0,
          0,
          y! + 4 * m * n * i,
          alpha,
          work,
        );
      }
    },
  };
};

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
