/**
 * Runs a trained model forward only.
 *
 * @module
 */

import { compileModel } from "../compile/compile_model.ts";
import type { Device } from "../devices/device.ts";
import type { Batch } from "../layers/batch.ts";
import type { AnyLayer, Tie } from "../layers/layer.ts";
import { openStage } from "../stage/open_stage.ts";
import { withAliases } from "../stage/stage_state.ts";

/** Computes the output of the last layer for one micro-batch. */
export type Predictor = (fields: Batch) => Promise<Float32Array>;

/**
 * Binds layers and their weights to a device.
 *
 * @param layers as for training, but the last returns what is asked for instead of a loss:
 * {@linkcode gpt2Logits}, {@linkcode mlpLogits}.
 * @param ties of the layers' parameters: `weights` need not hold the aliases.
 * @throws {TypeError} when a weight is missing.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, openPredictor, openReference } from "@troupe/troupe/kernels";
 *
 * const double: Layer = {
 *   name: "double",
 *   build: (g) => g.mul(g.batch("x", [2]), g.parameter("factor", [1])),
 * };
 * const device = await openReference();
 * const weights = new Map([["double.factor", Float32Array.of(2)]]);
 * const predict = await openPredictor(device, [double], weights);
 * assert.deepEqual(await predict({ x: Float32Array.of(3, 4) }), Float32Array.of(6, 8));
 * device.close();
 * ```
 */
export async function openPredictor(
  device: Device,
  layers: readonly AnyLayer[],
  weights: ReadonlyMap<string, Float32Array>,
  ties: readonly Tie[] = [],
): Promise<Predictor> {
  // With full recomputation a forward saves no activations.
  const model = compileModel({ name: "predictor", layers, predictions: 1, ties }, "full", {
    endsWithLoss: false,
  });
  const stage = await openStage(device, model, {
    optimizer: { kind: "sgd", momentum: 0, weightDecay: 0 },
    backward: "never",
  });
  stage.load(withAliases({ weights, moments: new Map() }, ties));
  return async (fields) => {
    const { output } = await stage.forward(0, undefined, fields);
    stage.drop(0);
    return output as Float32Array; // The program is fp32.
  };
}
