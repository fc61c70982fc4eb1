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
  assertInput,
  checkOptionNames,
  type LoraOptions,
  measureSamples,
  refusal,
  resolveDevice,
  withLora,
} from "../../kernels/internal.ts";
import {
  fileName,
  FORMAT,
  indexName,
  SHARDED_FORMAT,
  stepFolder,
  stepName,
} from "../checkpoints/format.ts";
import { lstat } from "../checkpoints/lock.ts";
import { parseRecord } from "../checkpoints/markers.ts";
import { averaged, locateCheckpoint } from "../checkpoints/read.ts";
import { readTensors } from "../checkpoints/tensors.ts";
import { fetchBytes, readWeights } from "../checkpoints/weights.ts";
import { meanLoss } from "../gradients/commit.ts";
import {
  buildModel,
  type BuiltModel,
  checkDataSizes,
  type ModelComponent,
  scriptModelOptions,
} from "../options/model_definition.ts";
import { quoted } from "../options/file_schema.ts";
import { check } from "../options/option.ts";
import type { TrainOptions } from "../options/train_options.ts";
import { ADAPTER_OPTIONS } from "../options/train_fields.ts";
import { RUN_FILES } from "../run_folder/metrics_file.ts";
import { meantRun, runPath } from "../run_folder/read.ts";

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
 * @param run folder of a run, its name below `runs/`, a safetensors file, the HTTP URL of such a folder
 * or file, or weights by name. In a page texts are URLs, relative to it; the run has ended, or the folder
 * of one of its checkpoints is named.
 * @param options the device, by default `auto` as in training and `wasm` in a page, the sizes of the
 * data for the definition, by default those in the run's checkpoint, and whether the averages of the weights
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
  const { device = isPage() ? "wasm" : "auto", sizes, ema = false, ...others } = options;
  const { name, loss } = definition;
  checkOptionNames(`load ${name}`, others, "device, sizes, ema");
  const { weights, kept } = await weightsOf(definition, run, sizes, ema);
  const classes = (kept.classes ?? {}) as LoadedModel["classes"];
  const modelFor = (samples: number) => modelOf(definition, samples, sizes, kept);
  const one = await modelFor(1), { ties, predictions: each } = one;
  const choice = await resolveDevice(device);
  const opened = await openDevice(choice.name, choice);
  const layersOf = async (samples: number) => {
    const model = await modelFor(samples);
    if (model.predicting) return model.predicting;
    const must = "it must have a loss beside build, or predicting layers";
    throw refusal(`load ${name}`, must, "neither", TypeError);
  };
  let losses: Promise<Predictor> | undefined, ofRow: number | undefined;
  try {
    const predict = await openPredictor(opened, layersOf, weights, ties);
    return {
      classes,
      predict,
      async evaluate(batches) {
        if (!loss) throw refusal(`evaluate ${name}`, "it must have a loss", "none", TypeError);
        const isList = Symbol.iterator in Object(batches), received = typeof batches;
        const must = "micro-batches must be a list, such as rows.inOrder(8)";
        assertInput(isList, `evaluate ${name}`, must, received, TypeError);
        const trained = async (samples: number) => (await modelFor(samples)).layers;
        losses ??= openPredictor(opened, trained, weights, ties);
        const measure = await losses;
        // A sample may have several losses, as of the tokens of a text.
        if (typeof each === "number") ofRow ??= each / lossesOf(one);
        const outputs: Float32Array[] = [];
        let count = 0;
        for (const batch of batches) {
          const output = await measure(batch);
          const [own] = measureSamples([output], definition.metrics, 1).losses;
          count += typeof each === "number" ? ofRow! * own!.length : each(batch);
          outputs.push(output);
        }
        assertInput(outputs.length > 0, `evaluate ${name}`, "there must be a micro-batch", "none");
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
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { defineModel, predict } from "@troupe/troupe/predict";
 *
 * const definition = defineModel({
 *   name: "line",
 *   build: ({ microBatch }) => [{
 *     name: "f",
 *     build: (g) => g.gemm(g.batch("x", [microBatch, 1]), g.parameter("slope", [1, 1])),
 *   }],
 *   loss: (g, y) => g.reshape(y, [-1]),
 * });
 * const weights = new Map([["f.slope", Float32Array.of(3)]]), x = Float32Array.of(1, 2);
 * const y = await predict(definition, weights, { x }, { device: "reference" });
 * assert.deepEqual(y, Float32Array.of(3, 6));
 * ```
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

/** Returns the number of losses that a model returns for a micro-batch. */
function lossesOf(model: BuiltModel): number {
  const { layers, programs } = compileModel(model, "full");
  const [output] = programs[layers.at(-1)!.program]!.outputs;
  const values = new Float32Array(output!.shape[0]!);
  return measureSamples([values], model.metrics, 1).losses[0]!.length;
}

/** Sizes of the data for a definition. */
type Sizes = Readonly<Record<string, number>> | undefined;

/** Configuration of a checkpoint, with the sizes and classes of the data. */
type Kept = Readonly<Record<string, unknown>>;

/** Returns the model of a run for a number of samples. */
async function modelOf(
  definition: ModelComponent,
  samples: number,
  sizes: Sizes,
  kept: Kept,
): Promise<BuiltModel> {
  const options = scriptModelOptions(samples, sizes ?? kept["sizes"] as Sizes);
  checkDataSizes(`load ${definition.name}`, definition, options.data);
  return adapted(await buildModel(definition, options), kept);
}

/** Returns a model with the adapter that its run trained. */
function adapted(model: BuiltModel, { lora, progress }: Kept): BuiltModel {
  const { jobs } = Object(progress), found = "several adapters, those of its jobs";
  assertInput(jobs === undefined, `load ${model.name}`, "the run must have one model", found);
  if (lora === undefined) return model;
  check(ADAPTER_OPTIONS.lora.schema, lora, { cannot: `Cannot load ${model.name}`, name: "lora" });
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
  const cannot = `load ${definition.name}`;
  const url = typeof run === "string" ? urlOf(run) : undefined;
  const isFolder = typeof run === "string" && !url && !run.endsWith(".safetensors");
  const must = "run must be a run's folder or name where ema is true";
  assertInput(!ema || isFolder, cannot, must, "weights");
  const isRun = typeof run === "string" || (run as unknown) instanceof Map, found = typeof run;
  assertInput(isRun, cannot, "run must be a name, a path or a Map of weights", found, TypeError);
  if (typeof run !== "string") return { weights: run, kept: {} };
  if (url || run.endsWith(".safetensors")) {
    const { file, kept } = url ? await locateAt(cannot, url) : { file: run, kept: {} };
    const model = await modelOf(definition, 1, sizes, kept);
    const { parameters } = compileModel(model, "none");
    return { weights: await readWeights(file, parameters, model.ties), kept };
  }
  const path = runPath(run);
  if (!lstat(path)) {
    const must = "run must be the folder of a run, or its name below runs/";
    throw refusal(cannot, must, quoted(run) + meantRun(run));
  }
  const checkpoint = await locateCheckpoint(path);
  if (!checkpoint) throw refusal(cannot, `${path} must have a checkpoint`, "none");
  const { state, config: kept } = ema ? averaged(checkpoint) : checkpoint;
  return { weights: readTensors(state.weights), kept };
}

const isPage = () => !("Deno" in globalThis) && "location" in globalThis;

/** Returns the URL of a run that is fetched; in a page all are. */
function urlOf(run: string): URL | undefined {
  if (isPage()) return new URL(run, globalThis.location.href);
  return /^https?:/.test(run) ? new URL(run) : undefined;
}

/**
 * Locates weights at a URL: a safetensors file, or one in the folder of a checkpoint, or of a run, whose
 * last step `run.json` has.
 */
async function locateAt(
  cannot: string,
  url: URL,
): Promise<{ readonly file: URL; readonly kept: Kept }> {
  if (url.pathname.endsWith(".safetensors")) return { file: url, kept: {} };
  const read = async (name: string) => {
    const file = new URL(name, folder);
    return parseRecord(`${file}`, await fetchBytes(file));
  };
  let folder = new URL(`${url.pathname.replace(/\/$/, "")}/`, url);
  if (!stepFolder(folder.pathname.split("/").at(-2)!)) {
    const { end } = await read(RUN_FILES.record) as { readonly end?: { readonly step?: unknown } };
    const must = `${url} must be a run that has ended, or the folder of a checkpoint (step-…)`;
    assertInput(Number.isSafeInteger(end?.step), cannot, must, "a run without an end");
    folder = new URL(`${stepName(Number(end!.step))}/`, folder);
  }
  const { format } = await read("manifest.json");
  const isKnown = format === FORMAT || format === SHARDED_FORMAT;
  const must = `${folder} must have a manifest of format ${FORMAT} or ${SHARDED_FORMAT}`;
  assertInput(isKnown, cannot, must, quoted(format));
  const name = format === FORMAT ? fileName("model") : indexName("model");
  return { file: new URL(name, folder), kept: await read("config.json") };
}
