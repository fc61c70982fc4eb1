/**
 * `--model mlp`: a multilayer perceptron that learns the classes of samples.
 *
 * @module
 */

import { mlp, mlpLogits } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart } from "../model_part.ts";
import { recognised } from "./recognised.ts";

/** A multilayer perceptron. */
export const mlpModel: ModelPart<"inputs" | "classes"> = defineModel({
  name: "mlp",
  version: "1",
  sizes: ["inputs", "classes"],
  data: "mnist",
  build({ layers, hidden, dropout, microBatch, data: { inputs, classes } }) {
    const config = { inputs, hidden, layers, classes };
    return {
      ...mlp({ ...config, dropout }, microBatch),
      config: { architecture: "mlp", ...config },
      show: (trained) => recognised(trained, mlpLogits(config, 1)),
    };
  },
});
