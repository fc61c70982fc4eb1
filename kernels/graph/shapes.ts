/**
 * Shapes of the results of operations, and windows over the spatial axes of a tensor [n, channels,
 * ...spatial], as in convolutions and pooling. They are checked when the graph is built, so that
 * errors point to the code that made them, and not to the device.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";

/** A number for every spatial axis, or one for each. */
export type PerAxis = number | Ints;

/** Windows over spatial axes: a number for each axis, and two for padding. */
export interface Windows {
  /** The size of a window. */
  readonly kernel: Ints;
  /** Steps from one window to the next. */
  readonly strides: Ints;
  /** Padding before each axis, then after each axis. */
  readonly pads: Ints;
  /** Steps from one element of a window to the next. */
  readonly dilations: Ints;
}

/** Options of windows. A number applies to every spatial axis. */
export interface WindowOptions {
  /** Steps from one window to the next. Default 1. */
  readonly strides?: PerAxis;
  /**
   * Padding on both sides of each axis; or before each axis and then after each axis; or ONNX's
   * `auto_pad`: with "SAME_UPPER" and "SAME_LOWER" an axis has ⌈size ÷ stride⌉ windows, and an odd
   * element of padding is after or before it. Default 0.
   */
  readonly pads?: PerAxis | "SAME_UPPER" | "SAME_LOWER" | "VALID";
  /** Steps from one element of a window to the next. Default 1. */
  readonly dilations?: PerAxis;
}

/** Returns the extent of a window along each axis. */
const spans = ({ kernel, dilations }: Pick<Windows, "kernel" | "dilations">) =>
  kernel.map((size, axis) => (size - 1) * dilations[axis]! + 1);

/** Returns a number for each axis. */
function perAxis(what: string, given: PerAxis, rank: number, least: number): number[] {
  const all = typeof given === "number" ? Array<number>(rank).fill(given) : [...given];
  const areCounts = all.every((number) => Number.isInteger(number) && number >= least);
  const must = `${what} must be ${rank} whole numbers from ${least}`;
  assertInput(all.length === rank && areCounts, "move a window", must, `[${all}]`);
  return all;
}

/** Returns the padding for ⌈size ÷ stride⌉ windows along each axis. */
function samePads(sizes: Ints, windows: Omit<Windows, "pads">, isLower: boolean): number[] {
  const totals = spans(windows).map((span, axis) => {
    const size = sizes[axis]!, stride = windows.strides[axis]!;
    return Math.max(0, (Math.ceil(size / stride) - 1) * stride + span - size);
  });
  const first = totals.map((total) => isLower ? Math.ceil(total / 2) : Math.floor(total / 2));
  return [...first, ...totals.map((total, axis) => total - first[axis]!)];
}

/**
 * Returns windows with all numbers.
 *
 * @param sizes of the spatial axes.
 * @throws {RangeError} when a number is out of its range.
 */
export function windowsOf(
  sizes: Ints,
  kernel: Ints,
  { strides = 1, pads = 0, dilations = 1 }: WindowOptions,
): Windows {
  const rank = sizes.length;
  const moves = {
    kernel: perAxis("its size", kernel, rank, 1),
    strides: perAxis("strides", strides, rank, 1),
    dilations: perAxis("dilations", dilations, rank, 1),
  };
  if (pads === "SAME_UPPER" || pads === "SAME_LOWER") {
    return { ...moves, pads: samePads(sizes, moves, pads === "SAME_LOWER") };
  }
  const given = pads === "VALID" ? 0 : pads;
  const both = typeof given !== "number" && given.length === rank ? [...given, ...given] : given;
  return { ...moves, pads: perAxis("pads", both, 2 * rank, 0) };
}

/** Returns the elements of each padded axis after the first window. */
function leftOver(sizes: Ints, windows: Windows): number[] {
  const rank = sizes.length;
  return spans(windows).map((span, axis) =>
    sizes[axis]! + windows.pads[axis]! + windows.pads[rank + axis]! - span
  );
}

/**
 * Returns the number of windows along each axis.
 *
 * @throws {RangeError} when an axis has no room for one.
 */
export function windowCounts(sizes: Ints, windows: Windows): number[] {
  return leftOver(sizes, windows).map((room, axis) => {
    const cannot = `move a window of [${windows.kernel}] over [${sizes}]`;
    const must = `it must fit into the padded axis ${axis}`;
    assertInput(room >= 0, cannot, must, `${-room} elements too few`);
    return Math.floor(room / windows.strides[axis]!) + 1;
  });
}

/** Returns the elements after the last window of each axis. */
export function unreadBehind(sizes: Ints, windows: Windows): number[] {
  return leftOver(sizes, windows).map((room, axis) => room % windows.strides[axis]!);
}

/** Adds a window over the elements of {@linkcode unreadBehind}, with the necessary padding. */
export function withLastWindows(sizes: Ints, windows: Windows): Windows {
  const { pads, strides } = windows, rank = sizes.length;
  const behind = unreadBehind(sizes, windows).map((unread, axis) => {
    const counts = windowCounts(sizes, windows)[axis]!, next = counts * strides[axis]!;
    const isInside = unread > 0 && next < sizes[axis]! + pads[axis]!;
    return isInside ? strides[axis]! - unread : 0;
  });
  return { ...windows, pads: pads.map((pad, i) => pad + (i < rank ? 0 : behind[i - rank]!)) };
}

/**
 * Returns the sizes of the result of a transposed convolution of a number of windows.
 *
 * @throws {RangeError} when an axis has none.
 */
export function transposedSizes(counts: Ints, windows: Windows, outputPadding: Ints): number[] {
  const { strides, pads } = windows, rank = counts.length;
  const sizes = spans(windows).map((span, axis) =>
    strides[axis]! * (counts[axis]! - 1) + span + outputPadding[axis]! - pads[axis]! -
    pads[rank + axis]!
  );
  const must = "pads must leave at least 1 element of each axis";
  assertInput(sizes.every((size) => size >= 1), "convolve (transposed)", must, `[${sizes}]`);
  return sizes;
}

/** Returns windows as attributes of an ONNX node. */
export function windowAttributes(
  { kernel, strides, pads, dilations }: Windows,
): Record<"kernel_shape" | "strides" | "pads" | "dilations", Ints> {
  return { kernel_shape: kernel, strides, pads, dilations };
}

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

/** Refuses shapes with too many elements or axes, or with a size that is no count. */
export function checkElements(shape: Ints): void {
  const areCounts = shape.every((size) => Number.isInteger(size) && size >= 0);
  const sizes = "sizes must be whole numbers from 0";
  assertInput(areCounts, "build a graph", sizes, `[${shape}]`);
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
    return x === 1 ? y : x;
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
