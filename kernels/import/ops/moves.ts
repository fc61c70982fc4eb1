/**
 * Operations that move elements without computing.
 *
 * @module
 */

import { elementCount, positiveAxis } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import {
  type Call,
  checkMade,
  constantNumbers,
  type ImportOp,
  intOf,
  intsOf,
  mustBe,
  operand,
  textOf,
} from "./call.ts";

/** Numbers of an input without which the shape of the result is not known. */
function neededNumbers(call: Call, place: number): readonly number[] {
  operand(call, place);
  return constantNumbers(call, place)!;
}

const reshape: ImportOp = (call) => {
  const x = operand(call, 0), keepsZero = intOf(call, "allowzero", 0) === 1;
  const shape = neededNumbers(call, 1).map((size, i) =>
    size === 0 && !keepsZero ? x.shape[i] ?? 0 : size
  );
  return call.g.reshape(x, shape);
};

const squeeze: ImportOp = (call) => {
  const x = operand(call, 0);
  const gone = constantNumbers(call, 1)?.map((axis) => positiveAxis(axis, x.shape.length));
  return call.g.reshape(
    x,
    x.shape.filter((size, i) => gone ? !gone.includes(i) : size !== 1),
  );
};

const unsqueeze: ImportOp = (call) => {
  const x = operand(call, 0), axes = neededNumbers(call, 1), rank = x.shape.length + axes.length;
  const added = new Set(axes.map((axis) => positiveAxis(axis, rank))), rest = [...x.shape];
  const shape = Array.from({ length: rank }, (_, i) => added.has(i) ? 1 : rest.shift()!);
  return call.g.reshape(x, shape);
};

const transpose: ImportOp = (call) => {
  const x = operand(call, 0);
  return call.g.transpose(x, intsOf(call, "perm") ?? x.shape.map((_, i) => i).reverse());
};

/** A size of 1 stays that of the operand. */
const expand: ImportOp = (call) => {
  const x = operand(call, 0), asked = neededNumbers(call, 1);
  const rank = Math.max(asked.length, x.shape.length);
  const at = (shape: readonly number[], i: number) => shape[i - rank + shape.length] ?? 1;
  const shape = Array.from({ length: rank }, (_, i) => {
    const [own, other] = [at(x.shape, i), at(asked, i)];
    return other === 1 ? own : other;
  });
  return call.g.expand(x, shape);
};

const split: ImportOp = (call) => {
  const x = operand(call, 0), { outputs: { length } } = call.node;
  const axis = positiveAxis(intOf(call, "axis", 0), x.shape.length), size = x.shape[axis]!;
  const equal = Math.ceil(size / length);
  const sizes = constantNumbers(call, 1) ??
    Array.from({ length }, (_, i) => Math.min(equal, Math.max(0, size - i * equal)));
  const isEqual = sizes.every((one) => one === sizes[0]);
  return call.g.split(x, axis, isEqual ? sizes.length : sizes);
};

const slice: ImportOp = (call) => {
  const starts = neededNumbers(call, 1), ends = neededNumbers(call, 2);
  return call.g.cut(
    operand(call, 0),
    starts,
    ends,
    constantNumbers(call, 3),
    constantNumbers(call, 4),
  );
};

const gather: ImportOp = (call) => {
  const x = operand(call, 0), at = operand(call, 1);
  // Bounds of a field are found where its numbers are used as they are.
  const [source] = at.node?.op === "Cast" ? at.node.inputs : [];
  const indices = source?.dtype === "i32" && at.dtype === "i64" ? source : at;
  return call.g.gather(x, indices, intOf(call, "axis", 0));
};

const threeOf = (call: Call): [Value, Value, Value] => [
  operand(call, 0),
  operand(call, 1),
  operand(call, 2),
];

const withoutBatch = (call: Call) => mustBe(call, "batch_dims", 0, [0]);

const reductionOf = (call: Call): "none" | "add" => {
  mustBe(call, "reduction", "none", ["none", "add"]);
  return textOf(call, "reduction", "none") as "none" | "add";
};

const oneHot: ImportOp = (call) => {
  const [size = 0] = neededNumbers(call, 1), [off = 0, on = 1] = neededNumbers(call, 2);
  checkMade("its depth", size);
  return call.g.oneHot(operand(call, 0), size, { axis: intOf(call, "axis", -1), on, off });
};

const triangle: ImportOp = (call) => {
  const which = intOf(call, "upper", 1) === 1 ? "upper" : "lower";
  checkMade("a matrix", elementCount(operand(call, 0).shape.slice(-2)));
  return call.g.triangle(operand(call, 0), which, constantNumbers(call, 1)?.[0] ?? 0);
};

/** [n, c, h·b, w·b] as [n, b²·c, h, w]: the blocks of each channel become channels. */
const spaceToDepth: ImportOp = (call) => {
  const x = operand(call, 0), block = intOf(call, "blocksize", 1), { g } = call;
  const [n = 0, c = 0, height = 0, width = 0] = x.shape, [h, w] = [height / block, width / block];
  const turned = g.transpose(g.reshape(x, [n, c, h, block, w, block]), [0, 3, 5, 1, 2, 4]);
  return g.reshape(turned, [n, c * block ** 2, h, w]);
};

/** By ONNX's names. */
export const MOVE_OPS: Readonly<Record<string, ImportOp>> = {
  Reshape: reshape,
  Flatten: (call) => call.g.flatten(operand(call, 0), intOf(call, "axis", 1)),
  Squeeze: squeeze,
  Unsqueeze: unsqueeze,
  Transpose: transpose,
  Expand: expand,
  Concat: (call) =>
    call.inputs.length === 1
      ? operand(call, 0)
      : call.g.concat(call.inputs as readonly Value[], intOf(call, "axis", 0)),
  Split: split,
  Slice: slice,
  Tile: (call) => call.g.tile(operand(call, 0), neededNumbers(call, 1)),
  Trilu: triangle,
  DepthToSpace: (call) => {
    mustBe(call, "mode", "DCR", ["DCR", "CRD"]);
    const mode = textOf(call, "mode", "DCR") as "DCR" | "CRD";
    return call.g.depthToSpace(operand(call, 0), intOf(call, "blocksize", 1), mode);
  },
  SpaceToDepth: spaceToDepth,
  Gather: gather,
  GatherElements: (call) =>
    call.g.gatherElements(operand(call, 0), operand(call, 1), intOf(call, "axis", 0)),
  GatherND: (call) => {
    withoutBatch(call);
    return call.g.gatherND(operand(call, 0), operand(call, 1));
  },
  ScatterElements: (call) => {
    const [base, at, updates] = threeOf(call), axis = intOf(call, "axis", 0);
    return call.g.scatterElements(base, at, updates, axis, reductionOf(call));
  },
  ScatterND: (call) => call.g.scatterND(...threeOf(call), reductionOf(call)),
  OneHot: oneHot,
};
