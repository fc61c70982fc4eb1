/**
 * Models that train what an ONNX file computes.
 *
 * @module
 */

import type { Model } from "../layers/layer.ts";
import { type Cut, cutAlike, cutPlan } from "./cut.ts";
import { samplesDimension } from "./dimensions.ts";
import { type OnnxGraph, readOnnx } from "./file/onnx_graph.ts";
import { layersOf } from "./layers.ts";
import { type FromOnnxOptions, planTraining } from "./training_plan.ts";

/**
 * A model that trains what an ONNX file computes.
 *
 * Its f32 initializers are the parameters, by their names; statistics of batch normalisations, and
 * what `frozen` says, are not trained, and those through which no gradient flows, such as masks of
 * attention, are constants. Fields of a micro-batch have the names of the file's inputs,
 * those of int64 are int32. Dropout is what the file says: none where it was exported for use.
 *
 * @param bytes the file, of opset 9 to 23.
 * @throws {TypeError} when it is no ONNX file, when a dimension is open, or naming the node whose
 * operation is not understood or has no gradient.
 * @throws {RangeError} when sizes in it do not fit together.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { fromOnnx, type Layer, layersOnnx } from "@troupe/troupe/kernels";
 *
 * const line: Layer = {
 *   name: "line",
 *   build: (g) => g.mul(g.batch("x", [2, 1]), g.parameter("slope", [1])),
 * };
 * const weights = new Map([["line.slope", Float32Array.of(3)]]);
 * const pieces = layersOnnx([line]).pieces((name) => weights.get(name));
 * const model = fromOnnx(await new Blob([...pieces]).bytes(), { loss: "mse", label: "y" });
 * assert.deepEqual(model.weights, weights);
 * assert.equal(model.samples, 2);
 * ```
 */
export function fromOnnx(bytes: Uint8Array, options: FromOnnxOptions): Model {
  const { external = {}, layers = 1 } = options;
  if (!Number.isSafeInteger(layers) || layers < 1) {
    throw new RangeError(
      `Cannot import the ONNX model: layers must be a whole number from 1, received ${layers}`,
    );
  }
  return importFile(readOnnx(bytes, external), options);
}

function importFile(file: OnnxGraph, options: FromOnnxOptions, like?: Cut): Model {
  const { plan, output, loss } = planTraining(file, options), { dimensions = {} } = options;
  const cut = like ? cutAlike(plan, like) : cutPlan(plan, output, options.layers);
  const { layers, ties } = layersOf(plan, cut, output, loss.build);
  const open = samplesDimension(file.inputs);
  return {
    name: "onnx",
    layers,
    predictions: loss.predictions,
    samples: loss.samples,
    ...ties.length > 0 && { ties },
    weights: new Map([...plan.weights].map(([name, { data }]) => [name, data])),
    ...open !== undefined && {
      withSamples: (samples: number) =>
        importFile(file, { ...options, dimensions: { ...dimensions, [open]: samples } }, cut),
    },
  };
}
