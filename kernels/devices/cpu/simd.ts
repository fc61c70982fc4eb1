/**
 * Our WebAssembly SIMD kernels, and the nodes of a model that they compute.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { elementCount, sameShape } from "../../graph/shapes.ts";
import { type FusedOp, MICROSOFT, TROUPE, type ValueType } from "../../graph/value.ts";
import { lowerModel } from "../../onnx/lower.ts";
import { ModelProtoSchema, type NodeProto } from "../../onnx/onnx_pb.ts";
import { floatOf, intOf, productOf } from "../../onnx/signature.ts";
import { type CutModel, cutModel, type PartCall } from "./parts.ts";
import { KERNELS_MODULE } from "./simd_module.ts";
import { builtin } from "../../builtin.ts";

const { inflateRawSync } = builtin("node:zlib");

/** The address of an array in the memory. */
type Address = number;

/** Names of the kernels; the *.as files document their computations and arguments. */
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

/** Returns the WebAssembly module of the kernels. */
export const kernelsModule = (): Uint8Array<ArrayBuffer> =>
  new Uint8Array(inflateRawSync(Uint8Array.fromBase64(KERNELS_MODULE)));

let module: WebAssembly.Module | undefined;

/** Compiles the kernels asynchronously, as pages must. */
export async function compileKernels(): Promise<void> {
  if (module) return;
  const packed = new Blob([Uint8Array.fromBase64(KERNELS_MODULE)]).stream();
  const unpacked = packed.pipeThrough(new DecompressionStream("deflate-raw"));
  module = await WebAssembly.compile(await new Response(unpacked).arrayBuffer());
}

/**
 * Instantiates the kernels over a memory.
 *
 * @param memory shared, of up to 4 GiB.
 */
export function loadKernels(memory: WebAssembly.Memory): SimdKernels {
  module ??= new WebAssembly.Module(kernelsModule());
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return exports as unknown as SimdKernels;
}

/** Largest number of random values that are drawn in one call. */
export const RANDOM_MAX = 16_384;

/** Address of drawn values, after the state of a generator. */
export const RANDOM_VALUES = 16;

const PAGE_BYTES = 65_536;

let opened: { readonly memory: WebAssembly.Memory; readonly kernels: SimdKernels } | undefined;

/** Returns the kernels over a private memory, one in each isolate. */
export function randomKernels(): NonNullable<typeof opened> {
  if (opened) return opened;
  const initial = Math.ceil((RANDOM_VALUES + 4 * RANDOM_MAX) / PAGE_BYTES);
  const memory = new WebAssembly.Memory({ initial, maximum: PAGE_BYTES, shared: true });
  return opened = { memory, kernels: loadKernels(memory) };
}

/** A node that one of our kernels computes. */
export interface SimdCall extends PartCall {
  /** Computes it, given the addresses of its inputs and outputs in the node's order. */
  readonly run: (
    kernels: SimdKernels,
    inputs: readonly Address[],
    outputs: readonly Address[],
    work: Address,
  ) => void;
}

/** Returns the call of a node, given the types of its inputs; undefined if it is not supported. */
type SimdNode = (
  node: NodeProto,
  types: readonly [ValueType, ...ValueType[]],
) => SimdCall | undefined;

/** Bytes of working memory of a product: packed blocks of `gemm.as`, and a tile. */
const WORK_BYTES = 4 * (256 * (128 + 512) + 4 * 8);

/** Returns the sizes of a product, its factor, and the strides of rows and columns of each operand. */
function layoutOf(node: NodeProto, a: ValueType, b: ValueType) {
  const { m, n, k, transA, transB, alpha } = productOf(node, a, b);
  const stepsA = transA ? [1, m] : [k, 1], stepsB = transB ? [1, k] : [n, 1];
  return { sizes: [m, n, k] as const, stepsA, stepsB, alpha };
}

/** α·a·b + c, where c is a row, as large as the product, or absent. */
const gemm: SimdNode = (node, [a, b, c]) => {
  const { sizes, stepsA, stepsB, alpha } = layoutOf(node, a, b!);
  const [m, n] = sizes, isRow = c && c.shape.at(-1) === n && elementCount(c.shape) === n;
  if (c && !isRow && !sameShape(c.shape, [m, n])) return undefined;
  if (c && floatOf(node, "beta", 1) !== 1) return undefined;
  const cRow = isRow && m > 1 ? 0 : n;
  return {
    workBytes: WORK_BYTES,
    run: (kernels, [atA, atB, atC = 0], [y], work) =>
      kernels.gemm(...sizes, atA!, ...stepsA, atB!, ...stepsB, atC, cRow, y!, alpha, work),
  };
};

/** Products of the matrices in the last two axes; the other axes are equal, or the second has none. */
const matMul: SimdNode = (node, [a, b]) => {
  const batch = a.shape.slice(0, -2);
  const isPlain = ["transBatchA", "transBatchB"].every((name) => intOf(node, name, 0) === 0);
  if (!isPlain || a.shape.length < 2 || !sameShape(batch, b!.shape.slice(0, -2))) return undefined;
  const { sizes, stepsA, stepsB, alpha } = layoutOf(node, a, b!), [m, n, k] = sizes;
  const count = elementCount(batch);
  return {
    workBytes: WORK_BYTES,
    run(kernels, [atA, atB], [y], work) {
      for (let i = 0; i < count; i++) {
        const from = atA! + 4 * m * k * i, other = atB! + 4 * k * n * i, to = y! + 4 * m * n * i;
        kernels.gemm(...sizes, from, ...stepsA, other, ...stepsB, 0, 0, to, alpha, work);
      }
    },
  };
};

/** A kernel whose first argument is the number of elements. */
const elementwise = (name: KernelName): SimdNode => (_, [{ shape }]) => {
  const count = elementCount(shape);
  return { run: (kernels, inputs, outputs) => kernels[name](count, ...inputs, ...outputs) };
};

/** Returns the number and length of the rows of a shape. */
function rowsOf(shape: readonly number[]): [rows: number, columns: number] {
  return [elementCount(shape.slice(0, -1)), shape.at(-1)!];
}

/** A kernel whose first arguments are rows and columns, and which computes row by row. */
const byRow = (name: KernelName): SimdNode => (_, [{ shape }]) => {
  const rows = rowsOf(shape);
  return { run: (kernels, inputs, outputs) => kernels[name](...rows, ...inputs, ...outputs) };
};

const isLast = (node: NodeProto, { shape }: ValueType) =>
  [-1, shape.length - 1].includes(intOf(node, "axis", -1));

/** A kernel of rows, if the axis is the last one. */
const byLastAxis = (name: KernelName): SimdNode => (node, types) =>
  isLast(node, types[0]) ? byRow(name)(node, types) : undefined;

const adamw: SimdNode = (node, [{ shape }]) => {
  const count = elementCount(shape);
  const factors = ["beta1", "rest1", "beta2", "rest2"].map((name) => floatOf(node, name, 0));
  return {
    run: (kernels, inputs, outputs) => kernels.adamw(count, ...inputs, ...outputs, ...factors),
  };
};

/** Returns an address for each output; absent optional ones are 0. */
const padded = (outputs: readonly Address[], count: number) =>
  Array.from({ length: count }, (_, i) => outputs[i] ?? 0);

const layerNorm: SimdNode = (node, types) => {
  const [{ shape }] = types, epsilon = floatOf(node, "epsilon", 1e-5);
  if (!isLast(node, types[0])) return undefined;
  return {
    run: (kernels, inputs, outputs) =>
      kernels.layerNorm(...rowsOf(shape), ...padded(inputs, 3), ...padded(outputs, 3), epsilon),
  };
};

const layerNormWeightGrad: SimdNode = (_, [{ shape }]) => ({
  run: (kernels, inputs, outputs) =>
    kernels.layerNormWeightGrad(...rowsOf(shape), ...inputs, ...padded(outputs, 2)),
});

/** The loss of each row. */
const crossEntropy: SimdNode = (node, types) =>
  types[1]?.dtype === "i32" ? byRow("crossEntropy")(node, types) : undefined;

/** GELU of one input; with a bias it is another operation. */
const gelu: SimdNode = (node, types) =>
  node.input.length === 1 ? elementwise("gelu")(node, types) : undefined;

/** Sum of squares of a vector; other shapes are not supported. */
const sumOfSquares: SimdNode = (_, [{ shape }]) => {
  const [count] = shape;
  if (shape.length !== 1) return undefined;
  return { run: (kernels, [x], [sum]) => kernels.sumOfSquares(count!, x!, sum!) };
};

const FUSED: Readonly<Partial<Record<FusedOp, SimdNode>>> = {
  AdamW: adamw,
  CrossEntropy: crossEntropy,
  FastGeluGrad: elementwise("geluGrad"),
  LayerNormInputGrad: byRow("layerNormInputGrad"),
  LayerNormWeightGrad: layerNormWeightGrad,
  SoftmaxGrad: byRow("softmaxGrad"),
};

const NODES: Readonly<Record<string, Readonly<Record<string, SimdNode>>>> = {
  [TROUPE]: FUSED,
  [MICROSOFT]: { FastGelu: gelu, FusedMatMul: matMul },
  "": {
    Gemm: gemm,
    LayerNormalization: layerNorm,
    LogSoftmax: byLastAxis("logSoftmax"),
    MatMul: matMul,
    ReduceSumSquare: sumOfSquares,
    Softmax: byLastAxis("softmax"),
  },
};

/** Our operations that are kept in a model for these kernels. */
export const KEPT = Object.fromEntries(
  Object.keys(FUSED).map((op) => [op, "keep"]),
) as Readonly<Partial<Record<FusedOp, "keep">>>;

/** Returns the call of a node; undefined if it is not supported, or a type is unknown. */
export function simdCall(
  node: NodeProto,
  types: ReadonlyMap<string, ValueType>,
): SimdCall | undefined {
  const call = NODES[node.domain ?? ""]?.[node.opType ?? ""];
  const [first, ...rest] = node.input.map((name) => types.get(name));
  if (!call || first?.dtype !== "f32" || rest.includes(undefined)) return undefined;
  return call(node, [first, ...rest as ValueType[]]);
}

/** Cuts a model at the nodes that our kernels compute; undefined if there are none. */
export const cutAtSimd = (model: Uint8Array): CutModel<SimdCall> | undefined =>
  cutModel(fromBinary(ModelProtoSchema, lowerModel(model, KEPT)), simdCall);
