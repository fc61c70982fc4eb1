/**
 * Operations that move elements without computing.
 *
 * @module
 */

import { elementCount, positiveAxis } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import { type Call, constantNumbers, type ImportOp, intOf, intsOf, operand } from "./call.ts";

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
  const free = shape.indexOf(-1);
  if (free >= 0) shape[free] = elementCount(x.shape) / -elementCount(shape);
  return call.g.reshape(x, shape);
};

const flatten: ImportOp = (call) => {
  const x = operand(call, 0), given = intOf(call, "axis", 1);
  const axis = given < 0 ? given + x.shape.length : given;
  return call.g.reshape(x, [
    elementCount(x.shape.slice(0, axis)),
    elementCount(x.shape.slice(axis)),
  ]);
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
  const x = operand(call, 0), { outputs } = call.node;
  const axis = positiveAxis(intOf(call, "axis", 0), x.shape.length), size = x.shape[axis]!;
  const equal = Math.ceil(size / outputs.length);
  const sizes = constantNumbers(call, 1) ??
    outputs.map((_, i) => Math.min(equal, Math.max(0, size - i * equal)));
  if (sizes.every((one) => one === sizes[0])) return call.g.split(x, axis, sizes.length);
  let from = 0;
  return sizes.map((one) => {
    from += one;
    return slice(call, x, [from - one], [from], [axis], [1]);
  });
};

/** How many elements a slice takes of an axis, from which on. */
function range(size: number, start: number, end: number, step: number) {
  const clamp = (value: number, least: number, most: number) =>
    Math.min(Math.max(value < 0 ? value + size : value, least), most);
  const from = step > 0 ? clamp(start, 0, size) : clamp(start, 0, size - 1);
  const to = step > 0 ? clamp(end, 0, size) : clamp(end, -1, size - 1);
  return { from, count: Math.max(0, Math.ceil((to - from) / step)) };
}

function slice(
  { g }: Call,
  x: Value,
  starts: readonly number[],
  ends: readonly number[],
  axes: readonly number[],
  steps: readonly number[],
): Value {
  const shape = [...x.shape];
  for (const [i, axis] of axes.entries()) {
    shape[axis] = range(x.shape[axis]!, starts[i]!, ends[i]!, steps[i]!).count;
  }
  const numbers = [starts, ends, axes, steps].map((list) => g.int64(list));
  return g.node("Slice", [x, ...numbers], [shape])[0]!;
}

const sliceOp: ImportOp = (call) => {
  const x = operand(call, 0), starts = neededNumbers(call, 1), ends = neededNumbers(call, 2);
  const axes = (constantNumbers(call, 3) ?? starts.map((_, i) => i))
    .map((axis) => positiveAxis(axis, x.shape.length));
  const steps = constantNumbers(call, 4) ?? starts.map(() => 1);
  const most = 2 ** 31 - 1, inside = (value: number) => Math.min(Math.max(value, -most), most);
  const given = [starts.map(inside), ends.map(inside)] as const;
  const isWhole = axes.every((axis, i) => {
    const { from, count } = range(x.shape[axis]!, given[0][i]!, given[1][i]!, steps[i]!);
    return steps[i] === 1 && from === 0 && count === x.shape[axis]!;
  });
  return isWhole ? x : slice(call, x, ...given, axes, steps);
};

const gather: ImportOp = (call) => {
  const x = operand(call, 0), at = operand(call, 1);
  const axis = positiveAxis(intOf(call, "axis", 0), x.shape.length);
  // Bounds of a field are found where its numbers are used as they are.
  const [source] = at.node?.op === "Cast" ? at.node.inputs : [];
  const indices = source?.dtype === "i32" && at.dtype === "i64" ? source : at;
  if (axis === 0) return call.g.gather(x, indices);
  const shape = [...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)];
  return call.g.node("Gather", [x, indices], [shape], { axis });
};

/** By ONNX's names. */
export const MOVE_OPS: Readonly<Record<string, ImportOp>> = {
  Reshape: reshape,
  Flatten: flatten,
  Squeeze: squeeze,
  Unsqueeze: unsqueeze,
  Transpose: transpose,
  Expand: expand,
  Concat: (call) =>
    call.inputs.length === 1
      ? operand(call, 0)
      : call.g.concat(call.inputs as readonly Value[], intOf(call, "axis", 0)),
  Split: split,
  Slice: sliceOp,
  Gather: gather,
  GatherElements: (call) => {
    const x = operand(call, 0), at = operand(call, 1);
    const axis = positiveAxis(intOf(call, "axis", 0), x.shape.length);
    return call.g.node("GatherElements", [x, at], [at.shape], { axis });
  },
};
