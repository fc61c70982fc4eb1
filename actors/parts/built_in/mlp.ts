/**
 * `--model mlp`: a multilayer perceptron that learns the classes of samples.
 *
 * @module
 */

import { mlp, mlpLogits } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart } from "../model_part.ts";

/** A multilayer perceptron. */
export const model: ModelPart<"inputs" | "classes"> = defineModel({
  name: "mlp",
  version: "1",
  sizes: ["inputs", "classes"],
  data: "mnist",
  build({ layers, hidden, dropout, microBatch, data: { inputs, classes } }) {
    const config = { inputs, hidden, layers, classes };
    return {
      ...mlp({ ...config, dropout }, microBatch),
      config: { architecture: "mlp", ...config },
      async show({ data, predict }) {
        const samples = data.heldOut?.(1) ?? [];
        if (samples.length === 0) return undefined;
        const logitsOf = await predict(mlpLogits(config, 1));
        let right = 0;
        for (const { features, labels } of samples) {
          const logits = await logitsOf({ features: features! });
          if (logits.indexOf(Math.max(...logits)) === labels![0]) right++;
        }
        const percent = (100 * right / samples.length).toFixed(1);
        return `${percent} % of the held-out samples are recognised`;
      },
    };
  },
});
