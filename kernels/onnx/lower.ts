/**
 * Our own operations, said in ONNX's.
 *
 * A gradient is many small operations in ONNX, each of which passes over memory. Graphs therefore
 * hold it as one of ours, and each device says before it compiles a model how it computes that: by
 * a kernel of its own, or in operations of ONNX, here or in another way that is faster there.
 *
 * @module
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { elementCount, sameShape } from "../graph/shapes.ts";
import { type FusedOp, TROUPE } from "../graph/value.ts";
import { windowAttributes, type Windows } from "../graph/windows.ts";
import { type GraphProto, ModelProtoSchema } from "./onnx_pb.ts";
import { type Rewrite, rewriteNodes, type Writer } from "./rewrite.ts";
import { signatureOf } from "./signature.ts";
import { floatOf, intOf, valueTypes } from "./value_types.ts";
import { windowsOfProto } from "./window_rules.ts";

/** Writes an operation that takes a shape. */
const shaped = (write: Writer, op: string, of: string, shape: readonly number[], to?: string) =>
  write.node(op, [of, write.constant("i64", shape)], {}, to);

/** Channels of a group from which the products of each element of a window are large enough alone. */
const WIDE_CHANNELS = 64;

/**
 * d weight[m][c][k] = Σ over samples and windows of narrow[m]·wide[c at element k of the window]:
 * products of matrices, of which the columns are all windows of all samples. What lies at element k of
 * each window is a slice of the padded image; where there are few channels, all slices are one matrix.
 */
const convWeightGrad: Rewrite = (write, node) => {
  const [narrow, wide] = node.input as [string, string], groups = intOf(node, "group", 1);
  const [n = 0, channels = 0, ...sizes] = write.typeOf(wide).shape, [dWeight] = node.output;
  const [, outputs = 0, ...counts] = write.typeOf(narrow).shape, per = channels / groups;
  const windows = windowsOfProto(node, sizes), columns = n * elementCount(counts);
  const turned = (of: string) =>
    write.node("Transpose", [of], { perm: [1, 0, ...sizes.map((_, axis) => axis + 2)] });
  const slices = slicesOf(write, turned(wide), { shape: [channels, n, ...sizes], windows, counts });
  const count = slices.length, result = [outputs, per, ...windows.kernel], rows = turned(narrow);
  const reshaped = (of: string, shape: readonly number[]) => shaped(write, "Reshape", of, shape);
  const joined = (all: readonly string[]) =>
    count === 1 ? all[0]! : write.node("Concat", all, { axis: 2 });
  const product = (right: string, size: number) =>
    write.node("Gemm", [reshaped(rows, [outputs, columns]), reshaped(right, [size, columns])], {
      transB: 1,
    });
  if (groups === 1 && per >= WIDE_CHANNELS) {
    const products = slices.map((slice) =>
      reshaped(product(slice, channels), [outputs, channels, 1])
    );
    return void shaped(write, "Reshape", joined(products), result, dWeight);
  }
  const all = joined(slices.map((slice) => reshaped(slice, [groups, per, 1, columns])));
  if (groups === 1) {
    return void shaped(write, "Reshape", product(all, per * count), result, dWeight);
  }
  const turn = { perm: [0, 2, 1] };
  const right = write.node("Transpose", [reshaped(all, [groups, per * count, columns])], turn);
  const left = reshaped(rows, [groups, outputs / groups, columns]);
  shaped(write, "Reshape", write.node("MatMul", [left, right]), result, dWeight);
};

/** For each element of a window, what lies there in every window of images. */
function slicesOf(
  write: Writer,
  images: string,
  { shape, windows, counts }: {
    readonly shape: readonly number[];
    readonly windows: Windows;
    readonly counts: readonly number[];
  },
): string[] {
  const { kernel, strides, pads, dilations } = windows, rank = counts.length;
  const padded = pads.every((pad) => pad === 0) ? images : write.node("Pad", [
    images,
    write.constant("i64", [0, 0, ...pads.slice(0, rank), 0, 0, ...pads.slice(rank)]),
  ]);
  const isWhole = padded === images && sameShape(counts, shape.slice(2));
  if (isWhole && elementCount(kernel) === 1) return [images];
  const lists = (...all: (readonly number[])[]) => all.map((one) => write.constant("i64", one));
  return Array.from({ length: elementCount(kernel) }, (_, element) => {
    const starts = kernel.map((size, axis) =>
      Math.floor(element / elementCount(kernel.slice(axis + 1))) % size * dilations[axis]!
    );
    const ends = starts.map((start, axis) => start + (counts[axis]! - 1) * strides[axis]! + 1);
    const axes = kernel.map((_, axis) => axis + 2);
    return write.node("Slice", [padded, ...lists(starts, ends, axes, strides)]);
  });
}

/** Each window's gradient goes where its largest element was found. */
const maxPoolGrad: Rewrite = (write, node) => {
  const [dy, x] = node.input as [string, string], { shape } = write.typeOf(x);
  const windows = windowsOfProto(node, shape.slice(2));
  const [, places] = write.nodes("MaxPool", [x], windowAttributes(windows), 2);
  const flat = (of: string) => shaped(write, "Reshape", of, [-1]);
  const zeros = shaped(write, "Expand", write.constant("f32", [0]), [elementCount(shape)]);
  const sums = write.node("ScatterElements", [zeros, flat(places!), flat(dy)], {
    axis: 0,
    reduction: "add",
  });
  shaped(write, "Reshape", sums, shape, node.output[0]);
};

/** How a device computes our operations: `"keep"` where by a kernel of its own. */
export type FusedRewrites = Readonly<Partial<Record<FusedOp, Rewrite | "keep">>>;

/** Element-wise operations, written with a few characters. */
export function arithmetic(write: Writer) {
  const binary = (op: string) => (a: string, b: string, output?: string) =>
    write.node(op, [a, b], {}, output);
  return {
    add: binary("Add"),
    sub: binary("Sub"),
    mul: binary("Mul"),
    div: binary("Div"),
    scalar: (value: number) => write.constant("f32", [value], []),
  };
}

/** With c = √(2/π), u = c(x + 0.044715x³): y = x·h, h = (1 + tanh u)/2, y' = h·(1 + x·2(1−h)·u'). */
const fastGeluGrad: Rewrite = (write, { input: [dy, x], output: [dx] }) => {
  const { add, sub, mul, scalar } = arithmetic(write);
  const c = Math.sqrt(2 / Math.PI), c3 = c * 0.044715, x2 = mul(x!, x!);
  const tanh = write.node("Tanh", [mul(x!, add(mul(x2, scalar(c3)), scalar(c)))]);
  const h = add(mul(tanh, scalar(0.5)), scalar(0.5));
  const slope = add(mul(x2, scalar(3 * c3)), scalar(c));
  const rest = mul(mul(x!, slope), sub(scalar(2), mul(h, scalar(2))));
  mul(dy!, mul(h, add(rest, scalar(1))), dx);
};

/** dx = y·dy − y·Σ y·dy. */
const softmaxGrad: Rewrite = (write, { input: [dy, y], output: [dx] }) => {
  const { sub, mul } = arithmetic(write), weighted = mul(y!, dy!);
  const last = write.constant("i64", [write.typeOf(y!).shape.length - 1]);
  sub(weighted, mul(y!, write.node("ReduceSum", [weighted, last], { keepdims: 1 })), dx);
};

/** x̂ = (x − μ)/σ. */
export function normalised(write: Writer, [x, mean, inverseDeviation]: readonly string[]): string {
  const { sub, mul } = arithmetic(write);
  return mul(sub(x!, mean!), inverseDeviation!);
}

/** With f = dy·w: dx = (f − mean f − x̂·mean(f·x̂))/σ. */
const layerNormInputGrad: Rewrite = (write, { input, output: [dx] }) => {
  const [dy, , , inverseDeviation, weight] = input, { sub, mul } = arithmetic(write);
  const normal = normalised(write, input.slice(1)), f = mul(dy!, weight!);
  const last = write.constant("i64", [write.typeOf(dy!).shape.length - 1]);
  const mean = (of: string) => write.node("ReduceMean", [of, last], { keepdims: 1 });
  const centred = sub(f, mean(f));
  mul(sub(centred, mul(normal, mean(mul(f, normal)))), inverseDeviation!, dx);
};

/** d weight = Σ dy·x̂, d bias = Σ dy, over all rows. */
const layerNormWeightGrad: Rewrite = (write, { input, output: [dWeight, dBias] }) => {
  const [dy] = input, { mul } = arithmetic(write), { shape } = write.typeOf(dy!);
  const rows = write.constant("i64", shape.slice(1).map((_, axis) => axis));
  const sum = (of: string, output: string) =>
    write.node("ReduceSum", [of, rows], { keepdims: 0 }, output);
  if (dWeight) sum(mul(dy!, normalised(write, input.slice(1))), dWeight);
  if (dBias) sum(dy!, dBias);
};

/** Elements of which more are not kept beside logits. */
const CHUNK_ELEMENTS = 2 ** 20;
/** The most parts in which rows are taken. */
const CHUNKS_MAX = 16;

/**
 * −ln softmax(logits)[target] of each row, and 0 where the target is −1. What is computed of logits on
 * the way stands there for some rows at a time.
 */
const crossEntropy: Rewrite = (write, { input, output: [losses] }) => {
  const [logits, targets] = input as [string, string], { shape } = write.typeOf(logits);
  const [rows = 0] = shape,
    parts = Math.min(
      rows,
      CHUNKS_MAX,
      Math.ceil(elementCount(shape) / CHUNK_ELEMENTS),
    );
  const none = write.constant("i32", [0], []), zero = write.constant("f32", [0], []);
  const isPredicted = write.node("Greater", [targets, write.constant("i32", [-1], [])]);
  const safe = write.node("Where", [isPredicted, targets, none]);
  const classes = write.node("Reshape", [safe, write.constant("i64", [rows, 1])]);
  const found = Array.from({ length: parts }, (_, i) => {
    const [from, to] = [i, i + 1].map((part) => Math.floor(part * rows / parts)) as [
      number,
      number,
    ];
    const isAll = parts === 1, axis = write.constant("i64", [0]);
    const some = isAll ? logits : write.node("Slice", [
      logits,
      write.constant("i64", [from]),
      write.constant("i64", [to]),
      axis,
    ]);
    // Not every device slices whole numbers.
    const places = Array.from({ length: to - from }, (_, row) => from + row);
    const own = isAll
      ? classes
      : write.node("Gather", [classes, write.constant("i32", places)], { axis: 0 });
    return write.node("GatherElements", [write.node("LogSoftmax", [some], { axis: 1 }), own], {
      axis: 1,
    });
  });
  const all = parts === 1 ? found[0]! : write.node("Concat", found, { axis: 0 });
  const flat = write.node("Reshape", [all, write.constant("i64", [rows])]);
  write.node("Where", [isPredicted, write.node("Neg", [flat]), zero], {}, losses);
};

/**
 * With g = d·scale, rest1 = 1 − β₁ and rest2 = 1 − β₂: m ← β₁m + rest1·g, v ← β₂v + rest2·g², w ← w·decay − m·rate/(√v + ε), where the
 * corrections of the moments' bias are folded into rate and ε; see `step_model.ts`.
 */
const adamw: Rewrite = (write, node) => {
  const [w, d, m, v, scale, decay, rate, epsilon] = node.input as [string, ...string[]];
  const [nextW, nextM, nextV] = node.output, { add, sub, mul, div, scalar } = arithmetic(write);
  const factor = (name: string) => scalar(floatOf(node, name, 0));
  const g = mul(d!, scale!);
  const first = add(mul(m!, factor("beta1")), mul(g, factor("rest1")), nextM);
  const second = add(mul(v!, factor("beta2")), mul(mul(g, g), factor("rest2")), nextV);
  const step = div(mul(first, rate!), add(write.node("Sqrt", [second]), epsilon!));
  sub(mul(w, decay!), step, nextW);
};

/** Each of our operations in those of ONNX. */
const IN_ONNX: Readonly<Record<FusedOp, Rewrite>> = {
  FastGeluGrad: fastGeluGrad,
  SoftmaxGrad: softmaxGrad,
  LayerNormInputGrad: layerNormInputGrad,
  LayerNormWeightGrad: layerNormWeightGrad,
  ConvWeightGrad: convWeightGrad,
  MaxPoolGrad: maxPoolGrad,
  CrossEntropy: crossEntropy,
  AdamW: adamw,
};

/** Rewrites our operations in a graph, in place. */
export function lowerGraph(graph: GraphProto, own: FusedRewrites = {}): void {
  const isFused = (op: string): op is FusedOp => Object.hasOwn(IN_ONNX, op);
  rewriteNodes(graph, valueTypes(graph, signatureOf(graph).inputs), "fused", (node) => {
    const op = node.opType ?? "";
    if (node.domain !== TROUPE || !isFused(op)) return undefined;
    const rewrite = own[op] ?? IN_ONNX[op];
    return rewrite === "keep" ? undefined : rewrite;
  });
}

/**
 * A model without our operations, as every device can compute it.
 *
 * @param own what a device does in another way.
 * @throws {Error} when the bytes are no model.
 */
export function lowerModel(bytes: Uint8Array, own: FusedRewrites = {}): Uint8Array {
  const model = fromBinary(ModelProtoSchema, bytes), { graph } = model;
  if (!graph?.node.some(({ domain }) => domain === TROUPE)) return bytes;
  lowerGraph(graph, own);
  return toBinary(ModelProtoSchema, model);
}
