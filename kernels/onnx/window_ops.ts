/**
 * Gradients of windows, said in ONNX's operations.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import { windowAttributes, windowCounts } from "../graph/windows.ts";
import type { Rewrite, Writer } from "./graph_writer.ts";
import { intOf, windowsOfProto } from "./value_types.ts";

/** Writes an operation that takes a shape. */
const shaped = (write: Writer, op: string, of: string, shape: readonly number[], to?: string) =>
  write.node(op, [of, write.constant("i64", shape)], {}, to);

/**
 * d weight[m][c][k] = Σ over samples and windows of narrow[m]·wide[c at k]: a convolution in which
 * samples and channels change places, and strides and dilations.
 */
export const convWeightGrad: Rewrite = (write, node) => {
  const [narrow, wide] = node.input as [string, string], groups = intOf(node, "group", 1);
  const [n = 0, channels = 0, ...sizes] = write.typeOf(wide).shape;
  const [, outputs = 0, ...counts] = write.typeOf(narrow).shape, per = channels / groups;
  const { kernel, strides, pads, dilations } = windowsOfProto(node, sizes);
  const swapped = { kernel: counts, strides: dilations, pads, dilations: strides };
  const spatial = sizes.map((_, axis) => axis);
  const turn = (of: string, axes: readonly number[], to?: string) =>
    write.node("Transpose", [of], { perm: [...axes, ...spatial.map((i) => i + axes.length)] }, to);
  const parts = shaped(write, "Reshape", wide, [n, groups, per, ...sizes]);
  const images = shaped(write, "Reshape", turn(parts, [2, 1, 0]), [per, groups * n, ...sizes]);
  const attributes = { ...windowAttributes(swapped), group: groups };
  const found = windowCounts(sizes, swapped);
  const whole = write.node("Conv", [images, turn(narrow, [1, 0])], attributes);
  const ends = [per, outputs, ...kernel];
  // Strides may leave room for more.
  const isLonger = found.some((count, axis) => count > kernel[axis]!);
  const kept = isLonger
    ? write.node("Slice", [
      whole,
      write.constant("i64", ends.map(() => 0)),
      write.constant("i64", ends),
    ])
    : whole;
  turn(kept, [1, 0], node.output[0]);
};

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
