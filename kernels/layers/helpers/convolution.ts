/**
 * Convolutions: `nn.Conv1d` and `nn.Conv2d` of PyTorch.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import type { Initializer, LayerGraph } from "../layer.ts";
import { torchDefault } from "./initializers.ts";
import { parameterName } from "./parameter_name.ts";

/** Options of {@linkcode convolution}. A number stands for that of every spatial axis. */
export interface ConvolutionOptions {
  /** Put before the names of the parameters, with a dot; nothing unless given. */
  readonly name?: string | undefined;
  /** Channels of the result. */
  readonly outputs: number;
  /** The size of a window. */
  readonly kernel: number | readonly number[];
  /** Steps from one window to the next; 1 unless given. */
  readonly stride?: number | readonly number[];
  /** Zeros in front of each axis, and as many behind; 0 unless given. */
  readonly padding?: number | readonly number[];
  /** Steps from one element of a window to the next; 1 unless given. */
  readonly dilation?: number | readonly number[];
  /** Parts of the channels, each of which is convolved by itself; 1 unless given. */
  readonly groups?: number;
  /** Whether there is a bias; true unless given. */
  readonly bias?: boolean;
  /** First values of the weight; uniform within ±1/√(numbers of a window) unless given, as those of the bias. */
  readonly initializer?: Initializer;
}

/**
 * Convolution of x [samples, channels, ...sizes], over one spatial axis or two: [samples, outputs,
 * ...counts]. Parameters are `weight` [outputs, channels ÷ groups, ...kernel] and `bias` [outputs].
 *
 * @throws {RangeError} when sizes do not fit.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { convolution, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 3, 28, 28]);
 * const y = convolution(g, x, { name: "conv", outputs: 8, kernel: 3, stride: 2, padding: 1 });
 * assert.deepEqual(y.shape, [2, 8, 14, 14]);
 * assert.deepEqual(g.parameters.map(({ spec: { name, shape } }) => [name, shape]), [
 *   ["conv.weight", [8, 3, 3, 3]],
 *   ["conv.bias", [8]],
 * ]);
 * ```
 */
export function convolution(
  g: LayerGraph,
  x: Value,
  { name, outputs, kernel, bias: hasBias = true, initializer, ...windows }: ConvolutionOptions,
): Value {
  const { stride = 1, padding = 0, dilation = 1, groups = 1 } = windows;
  const sizes = x.shape.slice(2);
  const window = typeof kernel === "number" ? sizes.map(() => kernel) : kernel;
  const shape = [outputs, x.shape[1]! / groups, ...window], own = torchDefault(shape);
  const weight = g.parameter(parameterName(name, "weight"), shape, initializer ?? own);
  const bias = hasBias ? g.parameter(parameterName(name, "bias"), [outputs], own) : undefined;
  return g.conv(x, weight, bias, {
    groups,
    strides: stride,
    pads: typeof padding === "number" ? padding : [...padding, ...padding],
    dilations: dilation,
  });
}
