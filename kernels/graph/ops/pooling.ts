/**
 * Pooling: what is said of each window of an image.
 *
 * @module
 */

import { one, type Value } from "../value.ts";
import {
  windowAttributes,
  windowCounts,
  type WindowOptions,
  type Windows,
  windowsOf,
  withLastWindows,
} from "../windows.ts";
import { ConvolutionGraph } from "./convolutions.ts";

/** Options of {@linkcode Graph.maxPool}. */
export interface PoolOptions extends WindowOptions {
  /** Whether windows also begin where they do not fit any more; not unless given. */
  readonly ceilMode?: boolean;
}

/** Options of {@linkcode Graph.averagePool}. */
export interface AveragePoolOptions extends Omit<PoolOptions, "dilations"> {
  /** Whether padding counts as elements, which are 0; not unless given, as in ONNX. */
  readonly countIncludePad?: boolean;
}

/** A graph to which pooling is added. */
export class PoolingGraph extends ConvolutionGraph {
  /**
   * The largest element of each window. The gradient goes to the first of equal ones.
   *
   * @param x [n, channels, ...sizes] with one spatial axis or two
   * @param kernel the size of a window, along each axis
   */
  maxPool(x: Value, kernel: number | readonly number[], options: PoolOptions = {}): Value {
    const windows = poolWindows(x, kernel, options);
    return one(this, "MaxPool", [x], pooledShape(x, windows), windowAttributes(windows));
  }

  /** The mean of each window; see {@linkcode Graph.maxPool}. */
  averagePool(
    x: Value,
    kernel: number | readonly number[],
    options: AveragePoolOptions = {},
  ): Value {
    const windows = poolWindows(x, kernel, options), shape = pooledShape(x, windows);
    const { dilations: _, ...attributes } = windowAttributes(windows);
    const means = one(this, "AveragePool", [x], shape, { ...attributes, count_include_pad: 1 });
    const padded = options.countIncludePad
      ? poolWindows(x, kernel, { ...options, ceilMode: false })
      : { pads: windows.pads.map(() => 0) };
    const shares = sharesInside(x.shape.slice(2), windows, padded.pads);
    if (shares.every((share) => share === 1)) return means;
    const factors = Float32Array.from(shares, (share) => 1 / share);
    return this.mul(means, this.constant(factors, [1, 1, ...shape.slice(2)]));
  }

  /** The mean of each channel: [n, channels, 1, ...]. */
  globalAveragePool(x: Value): Value {
    return this.mean(x, x.shape.slice(2).map((_, axis) => axis + 2), true);
  }

  /** The largest element of each channel: [n, channels, 1, ...]. */
  globalMaxPool(x: Value): Value {
    return this.maxPool(x, x.shape.slice(2));
  }
}

function poolWindows(
  { shape }: Value,
  kernel: number | readonly number[],
  { ceilMode = false, ...options }: PoolOptions,
): Windows {
  const sizes = shape.slice(2), rank = sizes.length;
  if (rank < 1 || rank > 2) {
    throw new RangeError(
      `Cannot pool: x must be [n, channels, width] or [n, channels, height, width], received [${shape}]`,
    );
  }
  const size = typeof kernel === "number" ? sizes.map(() => kernel) : kernel;
  const windows = windowsOf(sizes, size, options);
  if (windows.pads.some((pad, i) => pad >= windows.kernel[i % rank]!)) {
    throw new RangeError(
      `Cannot pool: pads must be smaller than the window [${windows.kernel}], received [${windows.pads}]`,
    );
  }
  return ceilMode ? withLastWindows(sizes, windows) : windows;
}

const pooledShape = ({ shape }: Value, windows: Windows) => [
  ...shape.slice(0, 2),
  ...windowCounts(shape.slice(2), windows),
];

/** How much of each window lies inside of what is padded by `pads`, row by row. */
function sharesInside(
  sizes: readonly number[],
  windows: Windows,
  pads: readonly number[],
): number[] {
  const rank = sizes.length, counts = windowCounts(sizes, windows);
  return counts.reduce((shares, count, axis) => {
    const size = windows.kernel[axis]!,
      low = -pads[axis]!,
      high = sizes[axis]! + pads[rank + axis]!;
    const along = Array.from({ length: count }, (_, i) => {
      const from = i * windows.strides[axis]! - windows.pads[axis]!;
      return (Math.min(from + size, high) - Math.max(from, low)) / size;
    });
    return shares.flatMap((share) => along.map((one) => share * one));
  }, [1]);
}
