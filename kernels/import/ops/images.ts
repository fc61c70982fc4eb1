/**
 * Operations on images: convolutions, pooling, norms of channels, sizes.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import type { WindowOptions } from "../../graph/windows.ts";
import {
  type Call,
  checkMade,
  constantNumbers,
  floatOf,
  type ImportOp,
  intOf,
  intsOf,
  mustBe,
  operand,
  textOf,
} from "./call.ts";

/** How windows move. */
function windowsOf(call: Call): WindowOptions {
  const auto = textOf(call, "auto_pad", "NOTSET"), pads = intsOf(call, "pads");
  const strides = intsOf(call, "strides"), dilations = intsOf(call, "dilations");
  mustBe(call, "auto_pad", "NOTSET", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]);
  return {
    ...strides && { strides },
    ...dilations && { dilations },
    ...auto === "NOTSET"
      ? pads && { pads }
      : { pads: auto as "SAME_UPPER" | "SAME_LOWER" | "VALID" },
  };
}

const conv: ImportOp = (call) =>
  call.g.conv(operand(call, 0), operand(call, 1), call.inputs[2], {
    ...windowsOf(call),
    groups: intOf(call, "group", 1),
  });

const convTranspose: ImportOp = (call) => {
  const outputPadding = intsOf(call, "output_padding");
  if (intsOf(call, "output_shape")) {
    throw new TypeError("the size of its output must follow from pads, received output_shape");
  }
  return call.g.convTranspose(operand(call, 0), operand(call, 1), call.inputs[2], {
    ...windowsOf(call),
    groups: intOf(call, "group", 1),
    ...outputPadding && { outputPadding },
  });
};

const poolOf = (pool: (call: Call, kernel: readonly number[]) => Value): ImportOp => (call) => {
  if (call.node.outputs[1]) {
    throw new TypeError(
      "it must have one output, received one for the places of what is largest, too",
    );
  }
  const kernel = intsOf(call, "kernel_shape") ?? [];
  checkMade("windows", kernel.reduce((product, size) => product * size, 1));
  return pool(call, kernel);
};

const ceilMode = (call: Call) => intOf(call, "ceil_mode", 0) === 1;

/** By the statistics of the file, which are not trained: what it computes in use. */
const batchNorm: ImportOp = (call) => {
  if (intOf(call, "training_mode", 0) === 1 || call.node.outputs.some((name, i) => i > 0 && name)) {
    throw new TypeError(
      "its statistics must be those of the file, as exported for evaluation, received one that takes those of each batch",
    );
  }
  const [x, weight, bias, mean, variance] = [0, 1, 2, 3, 4].map((place) =>
    operand(call, place)
  ) as [
    Value,
    Value,
    Value,
    Value,
    Value,
  ];
  return call.g.batchNorm(x, weight, bias, { mean, variance }, floatOf(call, "epsilon", 1e-5));
};

const groupNorm: ImportOp = (call) => {
  const { g } = call, x = operand(call, 0), channels = x.shape[1]!;
  checkMade("a sample", elementCount(x.shape.slice(1)));
  const groups = intOf(call, "num_groups", 1), ofGroups = intOf(call, "scale_of_groups", 0) === 1;
  const perChannel = (value: Value) =>
    ofGroups
      ? g.reshape(g.expand(g.reshape(value, [groups, 1]), [groups, channels / groups]), [channels])
      : value;
  const [weight, bias] = [1, 2].map((place) => perChannel(operand(call, place))) as [Value, Value];
  return g.groupNorm(x, groups, weight, bias, floatOf(call, "epsilon", 1e-5));
};

/** The sizes of a Resize's result: given, or by factors. */
function resizedShape(call: Call): readonly number[] {
  const { shape } = operand(call, 0), factors = constantNumbers(call, 2) ?? [];
  const sizes = constantNumbers(call, 3) ?? [];
  const axes = intsOf(call, "axes") ?? shape.map((_, axis) => axis);
  mustBe(call, "keep_aspect_ratio_policy", "stretch", ["stretch"]);
  const result = shape.map((size, axis) => {
    const at = axes.indexOf(axis);
    return at < 0 ? size : sizes[at] ?? size * factors[at]!;
  });
  const isWhole = result.every((size) => Number.isInteger(size) && size >= 1);
  if (isWhole && result[0] === shape[0] && result[1] === shape[1]) return result;
  throw new RangeError(
    `images must become so large that every size is a whole number, and samples and channels as many, received [${result}] of [${shape}]`,
  );
}

const COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"] as const;
const NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] as const;

const resize: ImportOp = (call) => {
  const x = operand(call, 0), { shape } = x, result = resizedShape(call);
  mustBe(call, "mode", "nearest", ["nearest", "linear"]);
  mustBe(call, "antialias", 0, [0]);
  mustBe(call, "coordinate_transformation_mode", "half_pixel", COORDINATES);
  mustBe(call, "nearest_mode", "round_prefer_floor", NEAREST);
  const mode = textOf(call, "mode", "nearest") as "nearest" | "linear";
  const coordinates = textOf(call, "coordinate_transformation_mode", "half_pixel");
  const nearest = textOf(call, "nearest_mode", "round_prefer_floor");
  const factors = result.map((size, axis) => size / shape[axis]!);
  const isRepeated = mode === "nearest" && factors.every(Number.isInteger) &&
    (coordinates === "asymmetric"
      ? nearest === "floor"
      : coordinates.endsWith("half_pixel") && nearest.startsWith("round_prefer_"));
  if (isRepeated) return call.g.upsample(x, factors.slice(2));
  for (const [axis, size] of result.entries()) {
    checkMade("old sizes times new ones", size === shape[axis] ? 0 : size * shape[axis]!);
  }
  return call.g.resize(x, result.slice(2), {
    mode,
    coordinates: coordinates as typeof COORDINATES[number],
    nearest: nearest as typeof NEAREST[number],
  });
};

const pad: ImportOp = (call) => {
  const x = operand(call, 0), rank = x.shape.length, pads = constantNumbers(call, 1) ?? [];
  mustBe(call, "mode", "constant", ["constant", "edge", "reflect"]);
  const mode = textOf(call, "mode", "constant") as "constant" | "edge" | "reflect";
  const axes = constantNumbers(call, 3)?.map((axis) => axis < 0 ? axis + rank : axis) ??
    x.shape.map((_, axis) => axis);
  const all = Array<number>(2 * rank).fill(0);
  for (const [i, axis] of axes.entries()) {
    all[axis] = pads[i]!;
    all[rank + axis] = pads[axes.length + i]!;
  }
  const value = constantNumbers(call, 2)?.[0] ?? 0;
  if (mode !== "constant") {
    for (const [axis, size] of x.shape.entries()) {
      checkMade("old sizes times new ones", size * (size + all[axis]! + all[rank + axis]!));
    }
  }
  return call.g.pad(x, all, mode === "constant" ? value : mode);
};

/** By ONNX's names. */
export const IMAGE_OPS: Readonly<Record<string, ImportOp>> = {
  Conv: conv,
  ConvTranspose: convTranspose,
  MaxPool: poolOf((call, kernel) =>
    call.g.maxPool(operand(call, 0), kernel, { ...windowsOf(call), ceilMode: ceilMode(call) })
  ),
  AveragePool: poolOf((call, kernel) => {
    checkMade("an image", elementCount(operand(call, 0).shape.slice(2)));
    return call.g.averagePool(operand(call, 0), kernel, {
      ...windowsOf(call),
      ceilMode: ceilMode(call),
      countIncludePad: intOf(call, "count_include_pad", 0) === 1,
    });
  }),
  GlobalAveragePool: (call) => call.g.globalAveragePool(operand(call, 0)),
  GlobalMaxPool: (call) => call.g.globalMaxPool(operand(call, 0)),
  BatchNormalization: batchNorm,
  InstanceNormalization: (call) => {
    const x = operand(call, 0), epsilon = floatOf(call, "epsilon", 1e-5);
    checkMade("an image", elementCount(x.shape.slice(2)));
    return call.g.instanceNorm(x, operand(call, 1), operand(call, 2), epsilon);
  },
  GroupNormalization: groupNorm,
  Resize: resize,
  Pad: pad,
};
