/**
 * The dtypes and shapes of what operations on windows return.
 *
 * @module
 */

import {
  transposedSizes,
  windowCounts,
  type WindowOptions,
  type Windows,
  windowsOf,
} from "../graph/windows.ts";
import type { NodeProto } from "./onnx_pb.ts";
import { intOf, intsOf, output, type Rule, textOf } from "./value_rule.ts";

/** The windows of a node, which moves them over `sizes`; ONNX's defaults for what is not given. */
export function windowsOfProto(
  node: NodeProto,
  sizes: readonly number[],
  kernel = intsOf(node, "kernel_shape") ?? [],
): Windows {
  const pads = textOf(node, "auto_pad");
  return windowsOf(sizes, kernel, {
    strides: intsOf(node, "strides") ?? 1,
    dilations: intsOf(node, "dilations") ?? 1,
    pads: pads && pads !== "NOTSET"
      ? pads as NonNullable<WindowOptions["pads"]>
      : intsOf(node, "pads") ?? 0,
  });
}

const conv: Rule = (known) => {
  const [x, weight] = known.inputs;
  if (!x || !weight) return undefined;
  const [n = 0, , ...sizes] = x.shape, [outputs = 0, , ...kernel] = weight.shape;
  const windows = windowsOfProto(known.node, sizes, kernel);
  return output(known, [n, outputs, ...windowCounts(sizes, windows)]);
};

const convTranspose: Rule = (known) => {
  const [x, weight] = known.inputs, { node } = known;
  if (!x || !weight || intsOf(node, "output_shape")) return undefined;
  const [n = 0, , ...counts] = x.shape, [, outputs = 0, ...kernel] = weight.shape;
  const strides = intsOf(node, "strides") ?? counts.map(() => 1);
  const windows = windowsOfProto(node, counts.map((count, axis) => count * strides[axis]!), kernel);
  const extra = intsOf(node, "output_padding") ?? counts.map(() => 0);
  const sizes = transposedSizes(counts, windows, extra);
  return output(known, [n, outputs * intOf(node, "group", 1), ...sizes]);
};

const pool: Rule = (known) => {
  const [x] = known.inputs;
  if (!x || intOf(known.node, "ceil_mode", 0) === 1) return undefined;
  const [n = 0, channels = 0, ...sizes] = x.shape;
  const shape = [n, channels, ...windowCounts(sizes, windowsOfProto(known.node, sizes))];
  return [{ dtype: x.dtype, shape }, { dtype: "i64", shape }];
};

/** Of `ConvWeightGrad`. */
export const weightGradient: Rule = (known) => {
  const [narrow, wide] = known.inputs, groups = intOf(known.node, "group", 1);
  const kernel = intsOf(known.node, "kernel_shape");
  return narrow && wide && kernel &&
    output(known, [narrow.shape[1]!, wide.shape[1]! / groups, ...kernel]);
};

/** Rules of operations on windows. */
export const WINDOW_RULES: Readonly<Record<string, Rule>> = {
  Conv: conv,
  ConvTranspose: convTranspose,
  MaxPool: pool,
  AveragePool: pool,
  Resize: (known) => {
    const sizes = known.numbers(3);
    return sizes && output(known, sizes);
  },
  Pad: (known) => {
    const [x] = known.inputs, pads = known.numbers(1);
    if (!x || !pads || known.node.input.length > 3) return undefined;
    const behind = pads.slice(x.shape.length);
    return output(known, x.shape.map((size, axis) => pads[axis]! + size + behind[axis]!));
  },
};
