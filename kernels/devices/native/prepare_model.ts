/**
 * A model as the native device computes it fastest.
 *
 * [Note: passes over memory] Where a matrix product runs at hundreds of GFLOP/s, an element-wise
 * operation on what does not fit into the cache of a core costs as much as a hundred
 * multiplications for each element. `deno task bench kernels` says what each rewrite here is worth.
 * All follow from shapes alone, so an operation has the same bits in every model.
 *
 * @module
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { elementCount } from "../../graph/shapes.ts";
import { arithmetic, type FusedRewrites, lowerGraph, normalised } from "../../onnx/fused_ops.ts";
import { type Rewrite, rewriteNodes, shareEqual, type Writer } from "../../onnx/graph_writer.ts";
import { type GraphProto, ModelProtoSchema, type NodeProto } from "../../onnx/onnx_pb.ts";
import { signatureOf } from "../../onnx/signature.ts";
import { floatOf, intOf, valueTypes, wholeNumbers } from "../../onnx/value_types.ts";

/** Elements of which a core's cache holds a few tensors. */
const CACHED_ELEMENTS = 2 ** 16;

/** Computes an element-wise operation part by part, so that what lies between stays in the caches. */
function inParts(
  write: Writer,
  threads: number,
  inputs: readonly string[],
  output: string,
  compute: (inputs: readonly string[], output?: string) => string,
): void {
  const { shape } = write.typeOf(inputs[0]!), rows = shape[0] ?? 1;
  const parts = Math.min(rows, Math.ceil(elementCount(shape) / (threads * CACHED_ELEMENTS)));
  if (parts === 1) return void compute(inputs, output);
  const sizes = Array.from(
    { length: parts },
    (_, i) => Math.floor((i + 1) * rows / parts) - Math.floor(i * rows / parts),
  );
  const split = inputs.map((name) =>
    write.nodes("Split", [name, write.constant("i64", sizes)], { axis: 0 }, parts)
  );
  const results = sizes.map((_, i) => compute(split.map((of) => of[i]!)));
  write.node("Concat", results, { axis: 0 }, output);
}

/** With c = 2√(2/π), t = c(x + 0.044715x³) and y = x·σ(t): y' = σ·(1 + x·t'·(1 − σ)). */
const fastGeluGrad = (threads: number): Rewrite => (write, { input, output: [dx] }) => {
  const { add, sub, mul, scalar } = arithmetic(write);
  const c = 2 * Math.sqrt(2 / Math.PI), k = 0.044715;
  inParts(write, threads, input, dx!, ([dy, x], output) => {
    const x2 = mul(x!, x!);
    const t = mul(mul(x!, add(x2, scalar(1 / k))), scalar(c * k));
    const sigmoid = write.node("Sigmoid", [t]);
    const slope = mul(x!, add(x2, scalar(1 / (3 * k))));
    const rest = mul(slope, sub(scalar(3 * c * k), mul(sigmoid, scalar(3 * c * k))));
    return mul(dy!, mul(sigmoid, add(rest, scalar(1))), output);
  });
};

/** dx = y·(dy − Σ y·dy). */
const softmaxGrad: Rewrite = (write, { input: [dy, y], output: [dx] }) => {
  const { sub, mul } = arithmetic(write);
  const last = write.constant("i64", [write.typeOf(y!).shape.length - 1]);
  const sum = write.node("ReduceSum", [mul(y!, dy!), last], { keepdims: 1 });
  mul(y!, sub(dy!, sum), dx);
};

/**
 * With x̂ = (x − μ)/σ and ŵ = w/n: dx = (dy·w − dy ŵ − x̂·((dy·x̂) ŵ))/σ, where the means over a row are
 * products with ŵ, and dy·x̂ is that of the weights' gradient.
 */
const layerNormInputGrad: Rewrite = (write, { input, output: [dx] }) => {
  const [dy, , , inverseDeviation, weight] = input, { sub, mul, scalar } = arithmetic(write);
  const normal = normalised(write, input.slice(1)), size = write.typeOf(weight!).shape[0]!;
  const column = write.node("Reshape", [
    mul(weight!, scalar(1 / size)),
    write.constant("i64", [size, 1]),
  ]);
  const mean = (of: string) => write.node("MatMul", [of, column]);
  const centred = sub(mul(dy!, weight!), mean(dy!));
  mul(sub(centred, mul(normal, mean(mul(dy!, normal)))), inverseDeviation!, dx);
};

const own = (threads: number): FusedRewrites => ({
  FastGeluGrad: fastGeluGrad(threads),
  LayerNormInputGrad: layerNormInputGrad,
  SoftmaxGrad: softmaxGrad,
});

/**
 * aᵀ·b with a transposed first: within the product it would be, once for each 128 columns of b. Worth
 * its pass over memory where a is narrower than b: `deno task bench weight-gradients` compares both.
 */
const weightGradient: Rewrite = (write, node) => {
  const [a, ...others] = node.input as [string, ...string[]];
  const transposed = write.node("Transpose", [a], { perm: [1, 0] });
  const [transB, alpha, beta] = [
    intOf(node, "transB", 0),
    floatOf(node, "alpha", 1),
    floatOf(node, "beta", 1),
  ];
  write.node(
    "Gemm",
    [transposed, ...others],
    { transB, alpha: { float: alpha }, beta: { float: beta } },
    node.output[0],
  );
};

/** Σ over rows as a product with ones, in half the time, and with several threads in a fifth. */
const columnSums: Rewrite = (write, { input: [x], output: [sums] }) => {
  const [rows, columns] = write.typeOf(x!).shape as [number, number];
  const ones = write.constant("f32", new Array(rows).fill(1), [1, rows]);
  const product = write.node("MatMul", [ones, x!]);
  write.node("Reshape", [product, write.constant("i64", [columns])], {}, sums);
};

/** Rewrites products and sums in place. */
function rewriteProducts(graph: GraphProto, threads: number): void {
  const types = valueTypes(graph, signatureOf(graph).inputs);
  const columnsOf = (name: string | undefined) => types.get(name ?? "")?.shape[1];
  const constants = new Map(graph.initializer.map((one) => [one.name, one]));
  const isOverRows = ({ input: [x, axes], output: [sums] }: NodeProto) => {
    const from = types.get(x!), constant = constants.get(axes);
    return from?.dtype === "f32" && from.shape.length === 2 && constant !== undefined &&
      types.get(sums!)?.shape.length === 1 && `${wholeNumbers(constant)}` === "0";
  };
  rewriteNodes(graph, types, "native", (node: NodeProto) => {
    if (node.opType === "ReduceSum" && isOverRows(node)) return columnSums;
    if (threads > 1 || node.opType !== "Gemm" || intOf(node, "transA", 0) !== 1) return undefined;
    const own = columnsOf(node.input[0]), result = columnsOf(node.output[0]);
    return own && result && own < result ? weightGradient : undefined;
  });
}

/**
 * Rewrites a model for the native device.
 *
 * @param threads within an operation: each has a cache, and its part of what is to be transposed.
 * @throws {Error} when the bytes are no model.
 */
export function prepareModel(bytes: Uint8Array, threads = 1): Uint8Array {
  const model = fromBinary(ModelProtoSchema, bytes), { graph } = model;
  if (!graph) return bytes;
  lowerGraph(graph, own(threads));
  rewriteProducts(graph, threads);
  shareEqual(graph);
  return toBinary(ModelProtoSchema, model);
}
