/**
 * A multilayer perceptron for classification: linear layers with GELU, softmax cross-entropy.
 *
 * @module
 */

import { checkPositive } from "../errors.ts";
import { checkModelSizes } from "../precision.ts";
import { checkDropout, type Layer, type Model } from "./layer.ts";
import { classifier } from "./metrics.ts";

/** The sizes of an MLP. */
export interface MlpConfig {
  /** Features of a sample. */
  readonly inputs: number;
  /** Width of the hidden layers. */
  readonly hidden: number;
  /** Hidden layers. */
  readonly layers: number;
  /** Classes. */
  readonly classes: number;
  /** Dropout probability after each hidden layer. Default 0. */
  readonly dropout?: number | undefined;
}

/**
 * An MLP classifier: micro-batches have the fields `features`, f32 [B·inputs], and `labels`,
 * int32 [B]. Parameters are `layers.i.weight` [in, out] and `layers.i.bias`. A sample with label −1
 * has no loss and no gradient.
 *
 * @param microBatchSize samples of a micro-batch, B.
 * @throws {RangeError} when a size is not a positive integer, or dropout is not from 0 to below 1.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mlp } from "@troupe/troupe/kernels";
 *
 * const model = mlp({ inputs: 784, hidden: 128, layers: 2, classes: 10 }, 32);
 * assert.deepEqual(model.layers.map((layer) => layer.name), ["hidden 0", "hidden 1", "classifier"]);
 * assert.equal(model.samples, 32);
 * ```
 */
export const mlp = (config: MlpConfig, microBatchSize: number): Model =>
  classifier("mlp", (samples) => linearLayers(config, samples), microBatchSize);

/**
 * The MLP for prediction: the last layer returns logits [B, classes].
 *
 * @throws {RangeError} as {@linkcode mlp}.
 */
export function mlpLogits(config: MlpConfig, microBatchSize: number): readonly Layer[] {
  return linearLayers({ ...config, dropout: 0 }, microBatchSize);
}

function linearLayers(config: MlpConfig, microBatch: number): Layer[] {
  const { inputs, hidden, layers, classes, dropout = 0 } = config;
  checkDropout("build MLP", dropout);
  checkModelSizes("MLP", { layers, hidden, "micro-batch": microBatch });
  checkPositive("build MLP", { inputs, classes });
  return Array.from({ length: layers + 1 }, (_, i): Layer => {
    const from = i === 0 ? inputs : hidden, to = i < layers ? hidden : classes;
    return {
      name: i < layers ? `hidden ${i}` : "classifier",
      prefix: `layers.${i}.`,
      build(g, x) {
        // He et al. (2015): this deviation keeps the variance of the activations.
        const deviation = Math.sqrt(2 / from);
        const weight = g.parameter("weight", [from, to], { kind: "normal", deviation });
        const bias = g.parameter("bias", [to], { kind: "constant", value: 0 });
        const y = g.gemm(x ?? g.batch("features", [microBatch, from]), weight, bias);
        return i < layers ? g.dropout(g.gelu(y), dropout) : y;
      },
    };
  });
}
