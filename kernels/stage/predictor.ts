/**
 * Predictions for any number of samples.
 *
 * @module
 */

import type { Batch } from "../batch.ts";
import { compileModel } from "../compile/compile_model.ts";
import type { Device } from "../devices/device.ts";
import { assertInput } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import type { AnyLayer, Tie } from "../layers/layer.ts";
import { openPredictor, type Predictor } from "./generate.ts";

/** Limit of samples in one computation. */
const SAMPLES_MAX = 256;

/**
 * Opens a model whose layers return predictions, for micro-batches of any number of samples.
 *
 * Samples are computed in powers of two: the model is compiled for each of them when it is first
 * needed, and missing samples are 0. The result of a sample does not depend on the others. Calls may
 * overlap; they are answered in order.
 *
 * @param layersOf returns the layers for a number of samples.
 * @param weights by name; those of aliases of `ties` may be left out.
 * @throws {TypeError} when a weight is missing.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openModel, openReference } from "@troupe/troupe/kernels";
 *
 * const device = await openReference(), weights = new Map([["f.factor", Float32Array.of(2)]]);
 * const predict = await openModel(device, (samples) => [{
 *   name: "f",
 *   build: (g) => g.mul(g.batch("x", [samples, 1]), g.parameter("factor", [1])),
 * }], weights);
 * assert.deepEqual(await predict({ x: Float32Array.of(1, 2, 3) }), Float32Array.of(2, 4, 6));
 * device.close();
 * ```
 */
export async function openModel(
  device: Device,
  layersOf: (samples: number) => readonly AnyLayer[] | Promise<readonly AnyLayer[]>,
  weights: ReadonlyMap<string, Float32Array>,
  ties: readonly Tie[] = [],
): Promise<Predictor> {
  const layers = await layersOf(1), opened = new Map<number, Promise<Predictor>>();
  const model = compileModel({ name: "predictor", layers, predictions: 1, ties }, "full", {
    endsWithLoss: false,
  });
  const fields = model.programs.flatMap((program) => program.fields);
  const sizes = new Map(fields.map(({ name, shape }) => [name, elementCount(shape)]));
  const predictorOf = (samples: number) =>
    opened.getOrInsertComputed(
      samples,
      async () => await openPredictor(device, await layersOf(samples), weights, ties),
    );
  await predictorOf(1);
  const predict = async (input: Batch): Promise<Float32Array> => {
    const samples = countSamples(input, sizes), outputs: Float32Array[] = [];
    for (let from = 0; from < samples; from += SAMPLES_MAX) {
      const count = Math.min(SAMPLES_MAX, samples - from);
      const padded = 2 ** Math.ceil(Math.log2(count));
      const part = Object.fromEntries(
        Array.from(sizes, ([name, size]) => [name, cut(input[name]!, size, from, count, padded)]),
      );
      const output = await (await predictorOf(padded))(part);
      outputs.push(output.slice(0, output.length / padded * count));
    }
    const all = new Float32Array(outputs.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const output of outputs) {
      all.set(output, at);
      at += output.length;
    }
    return all;
  };
  // A stage computes one micro-batch after another, but requests to a server overlap.
  let before: Promise<unknown> = Promise.resolve();
  return (input) => {
    const output = before.then(() => predict(input));
    before = output.catch(() => {});
    return output;
  };
}

function countSamples(input: Batch, sizes: ReadonlyMap<string, number>): number {
  const counts = Array.from(sizes, ([name, size]) => {
    const values = input[name], must = `the input must have the field "${name}"`;
    assertInput(values !== undefined, "predict", must, Object.keys(input).join(", ") || "none");
    const whole = `the field "${name}" must have ${size} values for each sample`;
    const isWhole = values!.length > 0 && values!.length % size === 0;
    assertInput(isWhole, "predict", whole, values!.length);
    return values!.length / size;
  });
  const isSame = counts.every((count) => count === counts[0]);
  assertInput(
    isSame,
    "predict",
    "all fields must have equal numbers of samples",
    counts.join(", "),
  );
  return counts[0] ?? 1;
}

/** Returns some samples of a field, with zeros behind them. */
function cut(
  values: Batch[string],
  size: number,
  from: number,
  count: number,
  padded: number,
): Batch[string] {
  const part = new (values.constructor as Float32ArrayConstructor)(padded * size);
  part.set(values.subarray(from * size, (from + count) * size) as Float32Array);
  return part;
}
