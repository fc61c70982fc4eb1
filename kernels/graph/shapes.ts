/**
 * Shapes of the results of operations. They are checked when the graph is built, so that errors
 * point to the code that made them, and not to the device.
 *
 * @module
 */

import { refusal } from "../errors.ts";

/** Whole numbers, such as a shape or axes. */
export type Ints = readonly number[];

/**
 * Returns the number of elements of a shape.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(elementCount([2, 3, 4]), 24);
 * assert.equal(elementCount([]), 1);
 * ```
 */
export function elementCount(shape: Ints): number {
  return shape.reduce((product, size) => product * size, 1);
}

/**
 * Largest number of elements of a tensor on a device, and of all parameters: they are counted in
 * int32.
 */
export const ELEMENTS_MAX = 2 ** 31 - 1;

/** Largest number of axes of a tensor, as in PyTorch. */
const AXES_MAX = 64;

/** Refuses shapes with too many elements or axes. */
export function checkElements(shape: Ints): void {
  if (elementCount(shape) <= Number.MAX_SAFE_INTEGER && shape.length <= AXES_MAX) return;
  const must = `at most ${Number.MAX_SAFE_INTEGER} elements and ${AXES_MAX} axes`;
  const received = shape.length > AXES_MAX ? `${shape.length} axes` : `shape [${shape}]`;
  throw refusal("build a graph", `a tensor must have ${must}`, received);
}

/** Returns whether two shapes are equal. */
export function sameShape(a: Ints, b: Ints): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

/** Returns the shape to which `a` and `b` broadcast (ONNX multidirectional broadcasting). */
export function broadcastShape(a: Ints, b: Ints): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, i) => {
    const x = a[a.length - rank + i] ?? 1;
    const y = b[b.length - rank + i] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw refusal("combine tensors", "shapes must be equal or broadcast", `[${a}] and [${b}]`);
    }
    return Math.max(x, y);
  });
}

/** Returns an axis counted from the front. */
export function positiveAxis(axis: number, rank: number): number {
  const positive = axis < 0 ? axis + rank : axis;
  if (!Number.isInteger(positive) || positive < 0 || positive >= rank) {
    throw refusal("use axis", `it must be in -${rank} .. ${rank - 1}`, axis);
  }
  return positive;
}

/** Elements of an axis: `count` from `start`, at distances of `step`. */
export interface Cut {
  /** The axis, counted from the front. */
  readonly axis: number;
  readonly start: number;
  readonly count: number;
  /** Not 0; negative in reverse order. */
  readonly step: number;
}

/** Returns the elements of an axis of `size` that ONNX's Slice takes. */
export function cutOf(size: number, start: number, end: number, step: number): Omit<Cut, "axis"> {
  const within = (index: number, low: number, high: number) =>
    Math.min(Math.max(index < 0 ? index + size : index, low), high);
  const first = step > 0 ? within(start, 0, size) : within(start, 0, size - 1);
  const last = step > 0 ? within(end, 0, size) : within(end, -1, size - 1);
  return { start: first, count: Math.max(0, Math.ceil((last - first) / step)), step };
}

/** Returns the end of a cut of an axis of `size`, as an input of ONNX's Slice. */
export function endOf({ start, count, step }: Cut, size: number): number {
  const end = start + count * step;
  return end < 0 ? -size - 1 : Math.min(end, size);
}

function swapped(shape: Ints, isSwapped: boolean): Ints {
  return isSwapped ? [...shape.slice(0, -2), shape.at(-1)!, shape.at(-2)!] : shape;
}

/** Returns the shape of a matrix product over the last two axes; `two` allows no other axes. */
export function productShape(
  a: Ints,
  b: Ints,
  { transA, transB }: { readonly transA: boolean; readonly transB: boolean },
  ranks: "batched" | "two" = "batched",
): number[] {
  const x = swapped(a, transA), y = swapped(b, transB);
  const isMatrix = ({ length }: Ints) => ranks === "two" ? length === 2 : length >= 2;
  if (!isMatrix(x) || !isMatrix(y) || x.at(-1) !== y.at(-2)) {
    throw refusal("multiply matrices", "inner sizes must be equal", `[${x}] and [${y}]`);
  }
  return [...broadcastShape(x.slice(0, -2), y.slice(0, -2)), x.at(-2)!, y.at(-1)!];
}

/** Returns the shape of a reduction over axes, which are counted from the front. */
export function reducedShape(shape: Ints, axes: Ints, isKept: boolean): number[] {
  return isKept
    ? shape.map((size, i) => axes.includes(i) ? 1 : size)
    : shape.filter((_, i) => !axes.includes(i));
}
