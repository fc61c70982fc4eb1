/**
 * Predictions of trained layers.
 *
 * @module
 */

import type { Batch } from "../batch.ts";
import { compileModel, type ModelProgram } from "../compile/compile_model.ts";
import type { Device } from "../devices/device.ts";
import { assertInput } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import type { AnyLayer, Tie } from "../layers/layer.ts";
import { openStage } from "./stage.ts";
import { withAliases } from "./state.ts";

/** Limit of samples in one computation. */
const SAMPLES_MAX = 256;

/** Computes the output of the last layer. Calls may overlap; they are answered in order. */
export type Predictor = (fields: Batch) => Promise<Float32Array>;

/**
 * Binds layers and their weights to a device.
 *
 * With a function of the number of samples, a prediction may have any number: samples are computed in
 * powers of two, the model is compiled for each of them when it is first needed, and missing samples
 * are 0. The result of a sample does not depend on the others.
 *
 * @param layers as for training, but the last returns outputs instead of a loss:
 * {@linkcode gpt2Logits}, {@linkcode mlpLogits}; or a function of the number of samples.
 * @param ties of the layers' parameters; `weights` may omit the aliases.
 * @throws {TypeError} when a weight is missing.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, openPredictor, openReference } from "@troupe/troupe/kernels";
 *
 * const double = (samples: number): Layer => ({
 *   name: "double",
 *   build: (g) => g.mul(g.batch("x", [samples, 1]), g.parameter("factor", [1])),
 * });
 * const device = await openReference();
 * const weights = new Map([["double.factor", Float32Array.of(2)]]);
 * const two = await openPredictor(device, [double(2)], weights);
 * assert.deepEqual(await two({ x: Float32Array.of(3, 4) }), Float32Array.of(6, 8));
 * const any = await openPredictor(device, (samples) => [double(samples)], weights);
 * assert.deepEqual(await any({ x: Float32Array.of(1, 2, 3) }), Float32Array.of(2, 4, 6));
 * device.close();
 * ```
 */
export async function openPredictor(
  device: Device,
  layers:
    | readonly AnyLayer[]
    | ((samples: number) => readonly AnyLayer[] | Promise<readonly AnyLayer[]>),
  weights: ReadonlyMap<string, Float32Array>,
  ties: readonly Tie[] = [],
): Promise<Predictor> {
  const predict = typeof layers === "function"
    ? await openForSamples(device, layers, weights, ties)
    : await openCompiled(device, compilePredictor(layers, ties), weights, ties);
  // A stage computes one micro-batch after another, but requests to a server overlap.
  let before: Promise<unknown> = Promise.resolve();
  return (input) => {
    const output = before.then(() => predict(input));
    before = output.catch(() => {});
    return output;
  };
}

/** Compiles layers; with the policy "full" a forward saves no activations. */
const compilePredictor = (layers: readonly AnyLayer[], ties: readonly Tie[]) =>
  compileModel({ name: "predictor", layers, predictions: 1, ties }, "full", {
    endsWithLoss: false,
  });

async function openCompiled(
  device: Device,
  model: ModelProgram,
  weights: ReadonlyMap<string, Float32Array>,
  ties: readonly Tie[],
): Promise<Predictor> {
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

async function openForSamples(
  device: Device,
  layersOf: (samples: number) => readonly AnyLayer[] | Promise<readonly AnyLayer[]>,
  weights: ReadonlyMap<string, Float32Array>,
  ties: readonly Tie[],
): Promise<Predictor> {
  const model = compilePredictor(await layersOf(1), ties);
  const first = openCompiled(device, model, weights, ties), opened = new Map([[1, first]]);
  const fields = model.programs.flatMap((program) => program.fields);
  const sizes = new Map(fields.map(({ name, shape }) => [name, elementCount(shape)]));
  const predictorOf = (samples: number) =>
    opened.getOrInsertComputed(
      samples,
      async () => await openPredictor(device, await layersOf(samples), weights, ties),
    );
  await first;
  return async (input) => {
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
  const must = "all fields must have equal numbers of samples";
  assertInput(isSame, "predict", must, counts.join(", "));
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
