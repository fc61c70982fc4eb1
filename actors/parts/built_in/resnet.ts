/**
 * `--model resnet`: a residual network of convolutions that learns the classes of pictures.
 *
 * @module
 */

import { resnet, resnetLogits } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart } from "../model_part.ts";
import { recognised } from "./recognised.ts";

/** A residual network. */
export const resnetModel: ModelPart<"height" | "width" | "channels" | "classes"> = defineModel({
  name: "resnet",
  version: "1",
  sizes: ["height", "width", "channels", "classes"],
  data: "mnist",
  build({ layers, hidden, microBatch, data: { height, width, channels, classes } }) {
    const config = { height, width, channels, layers, hidden, classes };
    return {
      ...resnet(config, microBatch),
      config: { architecture: "resnet", ...config },
      show: (trained) => recognised(trained, resnetLogits(config, 1)),
    };
  },
});
