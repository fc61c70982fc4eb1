/**
 * A U-Net (Ronneberger, Fischer, Brox 2015) that removes noise from pictures: down to coarser
 * resolutions and up again, where each resolution on the way up also receives the output of the same
 * resolution on the way down. These skip edges span all layers between: the finest spans the whole
 * network. Its blocks are residual ({@linkcode resnet}), as since Ho et al. (2020, appendix B).
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import { convolution, kaimingNormal, meanSquaredError } from "./helpers.ts";
import { type Layer, type LayerGraph, type Model } from "./layer.ts";
import { withLoss } from "./metrics.ts";
import { normalised, type PictureConfig, residualBlock, wayDown } from "./resnet.ts";

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
