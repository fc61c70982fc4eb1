/**
 * The gradient of the largest elements of windows, without their places: the WebGPU provider does not
 * say these.
 *
 * A convolution with a weight of ones and zeros lays the k elements of each window side by side; those
 * are marked that are equal to the largest and have none before them that is; and the transposed
 * convolution with the same weight brings the gradient of each window to its mark. All of it adds
 * zeros, but for elements in several windows, whose gradients it adds in one order.
 *
 * @module
 */

import { elementCount } from "../../../graph/shapes.ts";
import { unreadBehind, windowAttributes, windowCounts } from "../../../graph/windows.ts";
import { ONNX_DTYPE } from "../../../graph/value.ts";
import type { Rewrite } from "../../../onnx/graph_writer.ts";
import { windowsOfProto } from "../../../onnx/window_rules.ts";

/** Below every number that is not padding. */
const PADDING = -3.4e38;

/** A square matrix, row by row. */
const matrix = (size: number, entry: (row: number, column: number) => boolean) =>
  Array.from({ length: size * size }, (_, i) => +entry(Math.floor(i / size), i % size));

/** See above. */
export const maxPoolGrad: Rewrite = (write, node) => {
  const [dy, x] = node.input as [string, string], { shape } = write.typeOf(x);
  const [n = 0, channels = 0, ...sizes] = shape, windows = windowsOfProto(node, sizes);
  const counts = windowCounts(sizes, windows), all = elementCount(counts), { kernel } = windows;
  const k = elementCount(kernel), images = n * channels, rank = sizes.length;
  const reshaped = (of: string, to: readonly number[], output?: string) =>
    write.node("Reshape", [of, write.constant("i64", to)], {}, output);
  const select = write.constant("f32", matrix(k, (row, column) => row === column), [
    k,
    1,
    ...kernel,
  ]);
  const largest = reshaped(write.node("MaxPool", [x], windowAttributes(windows)), [images, 1, all]);
  const pads = [0, 0, ...windows.pads.slice(0, rank), 0, 0, ...windows.pads.slice(rank)];
  const padded = write.node("Pad", [
    reshaped(x, [images, 1, ...sizes]),
    write.constant("i64", pads),
    write.constant("f32", [PADDING], []),
  ]);
  const inside = windowAttributes({ ...windows, pads: windows.pads.map(() => 0) });
  const beside = reshaped(write.node("Conv", [padded, select], inside), [images, k, all]);
  const cast = (of: string) => write.node("Cast", [of], { to: ONNX_DTYPE.f32 });
  const equal = cast(write.node("Equal", [beside, largest]));
  const earlier = write.constant("f32", matrix(k, (row, column) => column < row), [k, k]);
  const isFirst = write.node("Less", [
    write.node("MatMul", [earlier, equal]),
    write.constant("f32", [0.5], []),
  ]);
  const marks = write.node("Mul", [equal, cast(isFirst)]);
  const moved = write.node("Mul", [marks, reshaped(dy, [images, 1, all])]);
  const spread = write.node("ConvTranspose", [reshaped(moved, [images, k, ...counts]), select], {
    ...windowAttributes(windows),
    output_padding: unreadBehind(sizes, windows),
  });
  reshaped(spread, shape, node.output[0]);
};
