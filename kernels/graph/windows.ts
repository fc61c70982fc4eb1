/**
 * Windows over the spatial axes of a tensor [n, channels, ...spatial], as in convolutions and
 * pooling.
 *
 * @module
 */

import type { Ints } from "./shapes.ts";
import { assertInput } from "../errors.ts";

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

/** Returns the sizes of the result of a transposed convolution of a number of windows. */
export function transposedSizes(counts: Ints, windows: Windows, outputPadding: Ints): number[] {
  const { strides, pads } = windows, rank = counts.length;
  return spans(windows).map((span, axis) =>
    strides[axis]! * (counts[axis]! - 1) + span + outputPadding[axis]! - pads[axis]! -
    pads[rank + axis]!
  );
}

/** Returns windows as attributes of an ONNX node. */
export function windowAttributes(
  { kernel, strides, pads, dilations }: Windows,
): Record<"kernel_shape" | "strides" | "pads" | "dilations", Ints> {
  return { kernel_shape: kernel, strides, pads, dilations };
}
