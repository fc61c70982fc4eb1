/**
 * Trained models, opened for predictions.
 *
 * @module
 */

import {
  type AnyLayer,
  type Batch,
  compileModel,
  openDevice,
  openPredictor,
  type Predictor,
} from "../../kernels/mod.ts";
import {
  type LoraOptions,
  measureSamples,
  refusal,
  resolveDevice,
  withLora,
} from "../../kernels/internal.ts";
import { averaged, locateCheckpoint } from "../checkpoints/read.ts";
import { readTensors } from "../checkpoints/tensors.ts";
import { readWeights } from "../checkpoints/weights.ts";
import { meanLoss } from "../gradients/commit.ts";
import {
  buildModel,
  type BuiltModel,
  checkDataSizes,
  type ModelComponent,
  scriptModelOptions,
} from "../options/model_definition.ts";
import { check } from "../options/option.ts";
import type { TrainOptions } from "../options/train_options.ts";
import { TRAIN } from "../options/train_table.ts";
import { runToResume } from "../run_folder/read.ts";

/** A trained model. Disposing of it closes its device. */
export interface LoadedModel extends Disposable {
  /** Names of the classes of the fields that are categories, if the run's data had them. */
  readonly classes: Readonly<Record<string, readonly string[]>>;
  /**
   * Returns the output of the model for any number of samples, one after another. Fields that it
   * does not read are ignored.
   *
   * @throws {RangeError} when a field is missing or has another size.
   */
  predict(input: Batch): Promise<Float32Array>;
  /**
   * Returns the mean loss and the metrics of samples.
   *
   * @throws {TypeError} when the definition has no loss.
   */
  evaluate(
    batches: Iterable<Batch>,
  ): Promise<{ readonly loss: number; readonly metrics?: Readonly<Record<string, number>> }>;
}

/**
 * Opens a trained model.
 *
 * @param definition of the model, as for `train()`; with a `loss` beside `build`.
 * @param run folder of a run, its name below `runs/`, a safetensors file, or weights by name.
 * @param options the device, by default `auto` as in training, the sizes of the data for the
 * definition, by default those in the run's checkpoint, and whether the averages of the weights
 * (`optimizer.ema`) take their place, by default not. A checkpoint's `ema.safetensors` has them, too.
 * @throws {RangeError} when there is no such run, or it has no checkpoint or no averages.
 * @throws {TypeError} when a weight is missing.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { defineModel, loadModel } from "@troupe/troupe/actors";
 *
 * const definition = defineModel({
 *   name: "line",
 *   build: ({ microBatch }) => [{
 *     name: "f",
 *     build: (g) => g.gemm(g.batch("x", [microBatch, 1]), g.parameter("slope", [1, 1])),
 *   }],
 *   loss: (g, y) => g.reshape(y, [-1]),
 * });
 * const weights = new Map([["f.slope", Float32Array.of(3)]]);
 * using line = await loadModel(definition, weights, { device: "reference" });
 * assert.deepEqual(await line.predict({ x: Float32Array.of(1, 2) }), Float32Array.of(3, 6));
 * ```
 */
export async function loadModel(
  definition: ModelComponent,
  run: string | ReadonlyMap<string, Float32Array>,
  options: {
    readonly device?: TrainOptions["device"];
    readonly sizes?: Readonly<Record<string, number>>;
    readonly ema?: boolean;
  } = {},
): Promise<LoadedModel> {
  const { device = "auto", sizes, ema = false } = options, { name, loss } = definition;
  const { weights, kept } = await weightsOf(definition, run, sizes, ema);
  const classes = (kept.classes ?? {}) as LoadedModel["classes"];
  checkDataSizes(`load ${name}`, definition, optionsOf(1, sizes, kept).data);
  const modelFor = async (samples: number) =>
    adapted(await buildModel(definition, optionsOf(samples, sizes, kept)), kept);
  const { ties, predictions: each } = await modelFor(1), choice = await resolveDevice(device);
  const opened = await openDevice(choice.name, choice);
  const layersOf = async (samples: number) => {
    const model = await modelFor(samples);
    if (model.predicting) return model.predicting;
    const must = "it must have a loss beside build, or predicting layers";
    throw refusal(`load ${name}`, must, "neither", TypeError);
  };
  let losses: Promise<Predictor> | undefined;
  try {
    const predict = await openPredictor(opened, layersOf, weights, ties);
    return {
      classes,
      predict,
      async evaluate(batches) {
        if (!loss) throw refusal(`evaluate ${name}`, "it must have a loss", "none", TypeError);
        losses ??= openPredictor(
          opened,
          async (one) => (await modelFor(one)).layers,
          weights,
          ties,
        );
        const outputs: Float32Array[] = [];
        let count = 0;
        for (const batch of batches) {
          const output = await (await losses)(batch);
          const [own] = measureSamples([output], definition.metrics, 1).losses;
          count += typeof each === "number" ? each * own!.length : each(batch);
          outputs.push(output);
        }
        const { losses: all, metrics } = measureSamples(outputs, definition.metrics, count);
        return { loss: meanLoss(all, count), ...metrics && { metrics } };
      },
      [Symbol.dispose]: () => opened.close(),
    };
  } catch (error) {
    opened.close();
    throw error;
  }
}

/**
 * Returns the output of a trained model for some samples: {@linkcode loadModel} for a single
 * prediction.
 *
 * @throws as {@linkcode loadModel} and {@linkcode LoadedModel.predict}.
 */
export async function predict(
  definition: ModelComponent,
  run: Parameters<typeof loadModel>[1],
  input: Batch,
  options: Parameters<typeof loadModel>[2] = {},
): Promise<Float32Array> {
  using model = await loadModel(definition, run, options);
  return await model.predict(input);
}

/** Sizes of the data for a definition. */
type Sizes = Readonly<Record<string, number>> | undefined;

/** Configuration of a checkpoint, with the sizes and classes of the data. */
type Kept = Readonly<Record<string, unknown>>;

const optionsOf = (samples: number, sizes: Sizes, { sizes: own }: Kept) =>
  scriptModelOptions(samples, sizes ?? own as Sizes);

/** Returns a model with the adapter that its run trained. */
function adapted(model: BuiltModel, { lora }: Kept): BuiltModel {
  if (lora === undefined) return model;
  check(TRAIN.lora.schema, lora, { cannot: `Cannot load ${model.name}`, name: "lora" });
  const withAdapter = (layers: readonly AnyLayer[]) =>
    withLora({ ...model, layers }, lora as LoraOptions).layers;
  const { layers, predicting } = model;
  return {
    ...{ ...model, layers: withAdapter(layers) },
    ...predicting && { predicting: withAdapter(predicting) },
  };
}

async function weightsOf(
  definition: ModelComponent,
  run: string | ReadonlyMap<string, Float32Array>,
  sizes: Sizes,
  ema: boolean,
): Promise<{ readonly weights: ReadonlyMap<string, Float32Array>; readonly kept: Kept }> {
  const cannot = `Cannot load ${definition.name}`;
  if (ema && (typeof run !== "string" || run.endsWith(".safetensors"))) {
    throw new RangeError(`${cannot}: run must be a run's folder or name where ema is true`);
  }
  if (typeof run !== "string") return { weights: run, kept: {} };
  if (run.endsWith(".safetensors")) {
    const model = await buildModel(definition, optionsOf(1, sizes, {})), { ties } = model;
    const { parameters } = compileModel(model, "none");
    return { weights: await readWeights(run, parameters, ties), kept: {} };
  }
  const path = runToResume(run), checkpoint = await locateCheckpoint(path);
  if (!checkpoint) throw new RangeError(`${cannot}: ${path} must have a checkpoint, received none`);
  const { state, config: kept } = ema ? averaged(checkpoint) : checkpoint;
  return { weights: readTensors(state.weights), kept };
}
