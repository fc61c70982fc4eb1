/**
 * Convolutions.
 *
 * @module
 */

import { one, type Value } from "../value.ts";
import {
  transposedSizes,
  windowAttributes,
  windowCounts,
  type WindowOptions,
  windowsOf,
} from "../windows.ts";
import { EinsumGraph } from "./einsum.ts";

/** Options of {@linkcode Graph.conv}. */
export interface ConvOptions extends WindowOptions {
  /** Parts of the channels, each of which is convolved by itself; 1 where not given. */
  readonly groups?: number;
}

/** Options of {@linkcode Graph.convTranspose}. */
export interface ConvTransposeOptions extends ConvOptions {
  /** Elements behind the last window that are returned too, fewer than strides; 0 where not given. */
  readonly outputPadding?: number | readonly number[];
}

/** A graph to which convolutions are added. */
export class ConvolutionGraph extends EinsumGraph {
  /**
   * Convolution (in the sense of networks: cross-correlation) over one spatial axis or two.
   *
   * @param x [n, channels, ...sizes]
   * @param weight [outputs, channels ÷ groups, ...kernel]
   * @param bias [outputs]
   * @returns [n, outputs, ...counts]
   * @throws {RangeError} when sizes do not fit.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { Graph } from "@troupe/troupe/kernels";
   *
   * const g = new Graph(), x = g.input("x", [8, 3, 28, 28]), w = g.input("w", [16, 3, 3, 3]);
   * const half = g.conv(x, w, undefined, { strides: 2, pads: 1 });
   * assert.deepEqual(half.shape, [8, 16, 14, 14]);
   * assert.deepEqual(g.maxPool(half, 2, { strides: 2 }).shape, [8, 16, 7, 7]);
   * assert.deepEqual(g.upsample(half, 2).shape, [8, 16, 28, 28]);
   * ```
   */
  conv(x: Value, weight: Value, bias?: Value, options: ConvOptions = {}): Value {
    const { groups = 1 } = options, [, channels = 0, ...sizes] = x.shape;
    const [outputs = 0, perGroup = 0, ...kernel] = weight.shape;
    checkSpatial("convolve", x, weight);
    checkGroups(
      "convolve",
      channels === perGroup * groups && outputs % groups === 0,
      [x, weight],
      groups,
    );
    checkBias("convolve", bias, outputs);
    const windows = windowsOf(sizes, kernel, options);
    const shape = [x.shape[0]!, outputs, ...windowCounts(sizes, windows)];
    const attributes = { ...windowAttributes(windows), group: groups };
    return one(this, "Conv", bias ? [x, weight, bias] : [x, weight], shape, attributes);
  }

  /**
   * The transpose of a convolution, by which images grow: the gradient of {@linkcode Graph.conv} for
   * its input, with the same weight.
   *
   * @param x [n, channels, ...counts]
   * @param weight [channels, outputs ÷ groups, ...kernel]
   * @param bias [outputs]
   * @returns [n, outputs, ...sizes]
   * @throws {RangeError} when sizes do not fit.
   */
  convTranspose(
    x: Value,
    weight: Value,
    bias?: Value,
    options: ConvTransposeOptions = {},
  ): Value {
    const { groups = 1, outputPadding = 0 } = options, [, channels = 0, ...counts] = x.shape;
    const [inputs = 0, perGroup = 0, ...kernel] = weight.shape, outputs = perGroup * groups;
    checkSpatial("convolve (transposed)", x, weight);
    checkGroups(
      "convolve (transposed)",
      channels === inputs && channels % groups === 0,
      [x, weight],
      groups,
    );
    checkBias("convolve (transposed)", bias, outputs);
    const { strides } = windowsOf(counts, kernel, { ...options, pads: 0 });
    const windows = windowsOf(counts.map((count, axis) => count * strides[axis]!), kernel, options);
    const output_padding = strides.map((stride, axis) => {
      const extra = typeof outputPadding === "number" ? outputPadding : outputPadding[axis]!;
      if (Number.isInteger(extra) && extra >= 0 && extra < stride) return extra;
      throw new RangeError(
        `Cannot convolve (transposed): output padding must be whole numbers below the strides [${strides}], received [${outputPadding}]`,
      );
    });
    const shape = [x.shape[0]!, outputs, ...transposedSizes(counts, windows, output_padding)];
    const attributes = { ...windowAttributes(windows), output_padding, group: groups };
    return one(this, "ConvTranspose", bias ? [x, weight, bias] : [x, weight], shape, attributes);
  }
}

/** The most spatial axes. */
const SPATIAL_MAX = 2;

function checkSpatial(what: string, { shape: x }: Value, { shape: weight }: Value): void {
  const spatial = x.length - 2;
  if (spatial >= 1 && spatial <= SPATIAL_MAX && weight.length === x.length) return;
  throw new RangeError(
    `Cannot ${what}: x must be [n, channels, width] or [n, channels, height, width] and the weight have as many axes, received [${x}] and [${weight}]`,
  );
}

function checkGroups(what: string, fits: boolean, operands: readonly Value[], groups: number) {
  if (Number.isInteger(groups) && groups >= 1 && fits) return;
  const [x, weight] = operands.map(({ shape }) => `[${shape}]`);
  throw new RangeError(
    `Cannot ${what}: channels must be those of the weight in each of the groups, received ${x} and ${weight} in ${groups} groups`,
  );
}

function checkBias(what: string, bias: Value | undefined, outputs: number): void {
  if (!bias || (bias.shape.length === 1 && bias.shape[0] === outputs)) return;
  throw new RangeError(`Cannot ${what}: bias must be [${outputs}], received [${bias.shape}]`);
}
