/**
 * The shapes of what operations return, each checked where the graph is built, so that a mistake is
 * told where it was made and not by the device later.
 *
 * @module
 */

/**
 * How many elements a shape holds.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { elementCount } from "@troupe/troupe/kernels";
 *
 * assert.equal(elementCount([2, 3, 4]), 24);
 * assert.equal(elementCount([]), 1);
 * ```
 */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** The most elements of a tensor that a device holds, and of all parameters: counted in int32. */
export const ELEMENTS_MAX = 2 ** 31 - 1;

/** Refuses a tensor whose elements cannot be counted. */
export function checkElements(shape: readonly number[]): void {
  if (elementCount(shape) <= Number.MAX_SAFE_INTEGER) return;
  throw new RangeError(
    `Cannot build a graph: a tensor must have at most ${Number.MAX_SAFE_INTEGER} elements, received shape [${shape}]`,
  );
}

/** Whether two shapes are the same. */
export function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

/** The shape of an element-wise operation on `a` and `b` (ONNX multidirectional broadcasting). */
export function broadcastShape(a: readonly number[], b: readonly number[]): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, i) => {
    const x = a[a.length - rank + i] ?? 1;
    const y = b[b.length - rank + i] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw new RangeError(
        `Cannot combine tensors: shapes must be equal or broadcast, received [${a}] and [${b}]`,
      );
    }
    return Math.max(x, y);
  });
}

/** The axis counted from the front. */
export function positiveAxis(axis: number, rank: number): number {
  const positive = axis < 0 ? axis + rank : axis;
  if (!Number.isInteger(positive) || positive < 0 || positive >= rank) {
    throw new RangeError(
      `Cannot use axis: it must be in -${rank} .. ${rank - 1}, received ${axis}`,
    );
  }
  return positive;
}

/** Axes in another order. */
export function transposedShape(
  shape: readonly number[],
  permutation: readonly number[],
): number[] {
  if (!sameShape([...permutation].sort((x, y) => x - y), shape.map((_, i) => i))) {
    throw new RangeError(
      `Cannot transpose: the permutation must name every axis of [${shape}] once, received [${permutation}]`,
    );
  }
  return permutation.map((axis) => shape[axis]!);
}

/** One of `count` equal parts along an axis that is counted from the front. */
export function partShape(shape: readonly number[], axis: number, count: number): number[] {
  const size = shape[axis]!;
  if (size % count !== 0) {
    throw new RangeError(
      `Cannot split: axis ${axis} of [${shape}] must divide by ${count}, received ${size}`,
    );
  }
  return withSize(shape, axis, size / count);
}

/** Shapes joined along an axis that is counted from the front. */
export function joinedShape(shapes: readonly (readonly number[])[], axis: number): number[] {
  return withSize(shapes[0]!, axis, shapes.reduce((sum, shape) => sum + shape[axis]!, 0));
}

const withSize = (shape: readonly number[], axis: number, size: number) =>
  shape.map((own, i) => i === axis ? size : own);

/** Which operands of a product are transposed. */
interface Transposes {
  readonly transA: boolean;
  readonly transB: boolean;
}

function swapped(shape: readonly number[], isSwapped: boolean): readonly number[] {
  return isSwapped ? [...shape.slice(0, -2), shape.at(-1)!, shape.at(-2)!] : shape;
}

/** A product of matrices: the last two axes of tensors, or of tensors with no other axes. */
export function productShape(
  a: readonly number[],
  b: readonly number[],
  { transA, transB }: Transposes,
  ranks: "batched" | "two" = "batched",
): number[] {
  const x = swapped(a, transA), y = swapped(b, transB);
  const isMatrix = ({ length }: readonly number[]) => ranks === "two" ? length === 2 : length >= 2;
  if (!isMatrix(x) || !isMatrix(y) || x.at(-1) !== y.at(-2)) {
    throw new RangeError(
      `Cannot multiply matrices: inner sizes must be equal, received [${x}] and [${y}]`,
    );
  }
  return [...broadcastShape(x.slice(0, -2), y.slice(0, -2)), x.at(-2)!, y.at(-1)!];
}

/** A reduction over axes that are counted from the front. */
export function reducedShape(
  shape: readonly number[],
  axes: readonly number[],
  isKept: boolean,
): number[] {
  return isKept
    ? shape.map((size, i) => axes.includes(i) ? 1 : size)
    : shape.filter((_, i) => !axes.includes(i));
}
