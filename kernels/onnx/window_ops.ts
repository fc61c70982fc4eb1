/**
 * Gradients of windows, said in ONNX's operations.
 *
 * @module
 */

import { elementCount, sameShape } from "../graph/shapes.ts";
import { windowAttributes, type Windows } from "../graph/windows.ts";
import type { Rewrite, Writer } from "./graph_writer.ts";
import { intOf } from "./value_types.ts";
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
export const convWeightGrad: Rewrite = (write, node) => {
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
export const maxPoolGrad: Rewrite = (write, node) => {
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
