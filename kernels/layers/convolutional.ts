/**
 * Networks of convolutions for pictures: a residual network that classifies them, and a U-Net that
 * removes noise.
 *
 * The blocks of the residual network (He et al. 2016, "Deep Residual Learning for Image Recognition")
 * are those of their second paper, "Identity Mappings in Deep Residual Networks": norm and activation
 * come before each convolution, and the shortcut has none. Micro-batches have few samples, so
 * GroupNorm (Wu, He 2018) replaces BatchNorm, and no sample's result depends on another's.
 *
 * The U-Net (Ronneberger, Fischer, Brox 2015) goes down to coarser resolutions and up again, where
 * each resolution on the way up also receives the output of the same resolution on the way down. These
 * skip edges span all layers between: the finest spans the whole network. Its blocks are residual, as
 * since Ho et al. (2020, appendix B).
 *
 * @module
 */

import { assertInput, checkPositive } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import { convolution, groupNorm, kaimingNormal, linear, meanSquaredError } from "./helpers.ts";
import type { Layer, LayerGraph, Model } from "./layer.ts";
import { classifier, withLoss } from "./metrics.ts";

/** The pictures and sizes of a network of convolutions. */
export interface PictureConfig {
  /** Rows of a picture. */
  readonly height: number;
  /** Columns of a picture. */
  readonly width: number;
  /** Numbers per pixel. */
  readonly channels: number;
  /** Resolutions: each halves height and width, and doubles the channels. */
  readonly layers: number;
  /** Channels of the coarsest resolution. */
  readonly hidden: number;
}

/** The sizes of a residual network. */
export interface ResNetConfig extends PictureConfig {
  /** Classes. */
  readonly classes: number;
}

/**
 * A residual network for classification: micro-batches have the fields `features`, f32
 * [B·channels·height·width], and `labels`, int32 [B]. A sample with label −1 has no loss and no
 * gradient. Parameters are `stem.weight`, `down.i.conv1.weight`, `head.linear.weight` and so on, in
 * PyTorch's layouts.
 *
 * @param microBatchSize samples of a micro-batch, B.
 * @throws {RangeError} when a size is not a positive integer, or `hidden` or a picture cannot be
 * halved for each resolution.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { resnet } from "@troupe/troupe/kernels";
 *
 * const pictures = { height: 28, width: 28, channels: 1 };
 * const model = resnet({ ...pictures, layers: 2, hidden: 16, classes: 10 }, 8);
 * assert.deepEqual(model.layers.map(({ name }) => name), ["stem", "down 0", "down 1", "head"]);
 * assert.throws(() => resnet({ ...pictures, layers: 3, hidden: 10, classes: 10 }, 8), {
 *   message: "Cannot build ResNet: hidden must be divisible by 4 for 3 layers, received 10",
 * });
 * ```
 */
export const resnet = (config: ResNetConfig, microBatchSize: number): Model =>
  classifier("resnet", (samples) => resnetLogits(config, samples), microBatchSize);

/**
 * The network for prediction: the last layer returns logits [B, classes].
 *
 * @throws {RangeError} as {@linkcode resnet}.
 */
export function resnetLogits(config: ResNetConfig, microBatchSize: number): readonly Layer[] {
  const { classes } = config;
  checkPositive("build ResNet", { classes });
  const head: Layer = {
    name: "head",
    build(g, x) {
      const pixels = normalised(g, x!, "norm");
      return linear(g, g.mean(pixels, [2, 3]), { name: "linear", outputs: classes });
    },
  };
  return [...wayDown("ResNet", config, microBatchSize), head];
}

/** Returns the layers from pictures to the coarsest resolution: a stem, and one block each. */
function wayDown(network: string, config: PictureConfig, samples: number): Layer[] {
  const { height, width, channels, layers } = config;
  checkPictures(network, config, samples);
  const stem: Layer = {
    name: "stem",
    build(g) {
      const flat = g.batch("features", [samples, channels * height * width]);
      const pictures = g.reshape(flat, [samples, channels, height, width]);
      return convolve(g, pictures, undefined, channelsAt(config, 0));
    },
  };
  const blocks = Array.from({ length: layers }, (_, level): Layer => ({
    name: `down ${level}`,
    prefix: `down.${level}.`,
    build: (g, x) => residualBlock(g, x!, channelsAt(config, level), level === 0 ? 1 : 2),
  }));
  return [stem, ...blocks];
}

/** Returns the channels of a resolution; 0 is the finest. */
const channelsAt = ({ hidden, layers }: PictureConfig, level: number): number =>
  hidden / 2 ** (layers - 1 - level);

/**
 * Two convolutions with a shortcut: x itself, or a 1×1 convolution of x where the number of channels
 * or the resolution changes. Names of parameters start with `name`.
 */
function residualBlock(
  g: LayerGraph,
  x: Value,
  outputs: number,
  stride = 1,
  name = "",
): Value {
  const first = convolve(g, normalised(g, x, `${name}norm1`), `${name}conv1`, outputs, stride);
  const second = convolve(g, normalised(g, first, `${name}norm2`), `${name}conv2`, outputs);
  const isSame = stride === 1 && x.shape[1] === outputs;
  return g.add(second, isSame ? x : convolve(g, x, `${name}shortcut`, outputs, stride, 1));
}

/** Channels of a group, if divisible; sizes from 2 to 32 are about equal (Wu, He, table 3). */
const GROUP = 8;

/** GroupNorm and SiLU. */
export function normalised(g: LayerGraph, x: Value, name: string): Value {
  const groups = x.shape[1]! / GROUP;
  return g.silu(groupNorm(g, x, { name, groups: Number.isInteger(groups) ? groups : 1 }));
}

/**
 * A convolution that keeps the resolution, or divides it by its stride. It has no bias, as a norm
 * follows it.
 */
function convolve(
  g: LayerGraph,
  x: Value,
  name: string | undefined,
  outputs: number,
  stride = 1,
  kernel = 3,
): Value {
  const initializer = kaimingNormal([outputs, x.shape[1]!, kernel, kernel]);
  const padding = (kernel - 1) / 2;
  return convolution(g, x, { name, outputs, kernel, stride, padding, initializer, bias: false });
}

function checkPictures(network: string, config: PictureConfig, samples: number): void {
  const { height, width, channels, layers, hidden } = config;
  const sizes = { height, width, channels, layers, hidden, "micro-batch": samples };
  checkPositive(`build ${network}`, sizes);
  const halvings = layers - 1, finest = 2 ** halvings, side = Math.min(height, width);
  const must = (holds: boolean, what: string, received: number) =>
    assertInput(holds, `build ${network}`, what, received);
  // The coarsest picture has more than one pixel in each direction, so that every halving has effect.
  const most = Math.ceil(Math.log2(side));
  must(layers <= most, `layers must be at most ${most} for pictures of ${height}×${width}`, layers);
  must(hidden % finest === 0, `hidden must be divisible by ${finest} for ${layers} layers`, hidden);
}

/**
 * A U-Net that predicts pictures without their noise: micro-batches have the fields `features` and
 * `targets`, both f32 [B·channels·height·width]. The loss of a sample is its mean squared error.
 * Parameters are `stem.weight`, `down.i.conv1.weight`, `up.i.upsample.weight`,
 * `up.i.block.conv1.weight`, `head.conv.weight` and so on, in PyTorch's layouts.
 *
 * @param microBatchSize samples of a micro-batch, B.
 * @throws {RangeError} when a size is not a positive integer, or `hidden` or a picture cannot be
 * halved for each resolution.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { unet } from "@troupe/troupe/kernels";
 *
 * const model = unet({ height: 28, width: 28, channels: 1, layers: 3, hidden: 32 }, 8);
 * assert.deepEqual(model.layers.map(({ name }) => name), [
 *   ...["stem", "down 0", "down 1", "down 2"],
 *   ...["up 1", "up 0", "head"],
 * ]);
 * ```
 */
export function unet(config: PictureConfig, microBatchSize: number): Model {
  const lossOf = (g: LayerGraph, pictures: Value) =>
    meanSquaredError(g, pictures, g.batch("targets", pictures.shape));
  return {
    name: "unet",
    layers: withLoss(unetPictures(config, microBatchSize), lossOf),
    predictions: microBatchSize,
    samples: microBatchSize,
    withSamples: (samples) => unet(config, samples),
  };
}

/**
 * The U-Net for prediction: the last layer returns pictures [B, channels·height·width].
 *
 * @throws {RangeError} as {@linkcode unet}.
 */
export function unetPictures(config: PictureConfig, microBatchSize: number): readonly Layer[] {
  const { height, width, channels, layers } = config;
  const [stem, ...blocks] = wayDown("U-Net", config, microBatchSize) as [Layer, ...Layer[]];
  const down = blocks.map((block, level): Layer => ({
    ...block,
    build(g, x) {
      const y = block.build(g, x);
      // The coarsest output is passed directly to the first layer of the way up.
      if (level < layers - 1) g.give(block.name, y);
      return y;
    },
  }));
  const up = blocks.slice(0, -1).map((block, level): Layer => ({
    name: `up ${level}`,
    prefix: `up.${level}.`,
    build(g, x) {
      const skip = g.take(block.name);
      const both = g.concat([upsample(g, x!, skip.shape), skip], 1);
      return residualBlock(g, both, skip.shape[1]!, 1, "block.");
    },
  }));
  const head: Layer = {
    name: "head",
    build(g, x) {
      const last = { name: "conv", outputs: channels, kernel: 3, padding: 1 };
      const pictures = convolution(g, normalised(g, x!, "norm"), last);
      return g.reshape(pictures, [microBatchSize, channels * height * width]);
    },
  };
  return [stem, ...down, ...up.reverse(), head];
}

/** Transposes the convolution that left the resolution of `shape` on the way down. */
function upsample(g: LayerGraph, x: Value, shape: readonly number[]): Value {
  const [, inputs] = x.shape as [number, number], [, outputs, ...size] = shape as [number, number];
  const weightShape = [inputs, outputs, 3, 3];
  // Each pixel of the result has a quarter of the nine weights of a pixel of x.
  const initializer = kaimingNormal(weightShape, { fan: "out", gain: 2 });
  const weight = g.parameter("upsample.weight", weightShape, initializer);
  // Pictures of 13 and of 14 pixels were both halved to 7.
  const outputPadding = size.map((side) => 1 - side % 2);
  return g.convTranspose(x, weight, undefined, { strides: 2, pads: 1, outputPadding });
}
