/**
 * Data and models as scripts and modules define them.
 *
 * @module
 */

import type {
  AnyLayer,
  Batch,
  DeviceChoice,
  FileTokenizer,
  Metric,
  Model,
  Predictor,
  Tie,
  Tokenizer,
} from "../../kernels/mod.ts";
import { assertInput, refusal, withLossAndMetrics } from "../../kernels/internal.ts";

/** Opened data. */
export interface OpenedData {
  /**
   * Micro-batches in global order, from step 1. A resumed run skips those of earlier steps, or calls
   * `from` if the data has it.
   */
  readonly batches: Data;
  /** Returns held-out micro-batches of `microBatch` samples. Default: none are held out. */
  heldOut?(microBatch: number): readonly Batch[];
  /** Sizes for the model: `vocab` of tokens, `inputs` and `classes` of samples. */
  readonly sizes?: Readonly<Record<string, number>>;
  /** Tokenizer of its text. */
  readonly tokenizer?: Tokenizer | FileTokenizer;
}

/** Options of a model: sizes from the flags of `troupe train`, and those of the data. */
export interface ModelOptions<Size extends string = string> {
  /** Blocks, or hidden layers. */
  readonly layers: number;
  /** Width of the layers. */
  readonly hidden: number;
  /** Attention heads. */
  readonly heads: number;
  /** Experts of a mixture, if given. */
  readonly experts?: number | undefined;
  /** Attention heads of keys and values, if given. */
  readonly keyValueHeads?: number | undefined;
  /** Inner width of a feed-forward network, if given. */
  readonly intermediate?: number | undefined;
  /** Base of the angles of rotary positions, if given. */
  readonly ropeTheta?: number | undefined;
  /** Constant added to the mean square in a norm, if given. */
  readonly normEpsilon?: number | undefined;
  /** Tokens of a sample. */
  readonly seq: number;
  /** Number of token ids, if given. */
  readonly vocab: number | undefined;
  /** True if the head shares the weight of the token embedding. */
  readonly tie: boolean;
  /** Layers of the head, each with a slice of the vocabulary. Default 1. */
  readonly headSlices?: number | undefined;
  /** Dropout probability in training. Default 0. */
  readonly dropout?: number | undefined;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** Sizes of the data, with all that the model requires. */
  readonly data: Readonly<Record<Size, number>>;
}

/** A model with its configuration for checkpoints and its report. */
export interface BuiltModel extends Model {
  /** Fields for a checkpoint's `config.json`; `architecture` defaults to the name. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** The layers with a predicting last layer, for {@linkcode openPredictor}. */
  readonly predicting?: readonly AnyLayer[];
  /** Converts a micro-batch of the data to the fields of the layers. */
  fieldsOf?(batch: Batch): Batch;
  /** Returns an ONNX file with trained weights, if the model comes from an ONNX file. */
  onnx?(weights: ReadonlyMap<string, Float32Array>): Uint8Array;
  /** Returns a report of the trained model, which is printed after a run. */
  show?(trained: Trained): Promise<string | undefined>;
}

/** A finished run, for the report of its model. */
export interface Trained {
  /** Weights by name. */
  readonly weights: ReadonlyMap<string, Float32Array>;
  /** Device of the run. */
  readonly device: DeviceChoice;
  /** Training data. */
  readonly data: OpenedData;
  /** Seed of the run. */
  readonly seed: number;
  /** Opens layers with a predicting last layer and the trained weights; closed after the report. */
  predict(layers: readonly AnyLayer[], ties?: readonly Tie[]): Promise<Predictor>;
}

/**
 * A model exported by a module as `model`, and named by a registry or the module's specifier:
 * `troupe train --model jsr:@you/model`.
 *
 * @typeParam Size the required sizes of its data, such as `vocab` of tokens, or `inputs` and
 * `classes` of samples.
 */
export interface ModelComponent<Size extends string = string> {
  /** Name: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Version, for readers. */
  readonly version?: string;
  /** Required sizes of its data; data without them is refused. */
  readonly sizes?: readonly Size[];
  /** Default data. Without it, `--data` is required. */
  readonly data?: string;
  /**
   * Returns the loss of each sample, f32 [samples], from the output of the last layer. Then `build`
   * returns layers without a loss, which predict as they are.
   */
  readonly loss?: Metric["terms"][string];
  /**
   * Metrics in addition to `loss`, by name: a number for each sample, whose mean over
   * predictions is reported,
   * or sums of such numbers.
   */
  readonly metrics?: Readonly<Record<string, Metric | Metric["terms"][string]>>;
  /** True if its documents are pairs: the `ids` that it reads, then the `targets` that it writes. */
  readonly readsPairs?: true;
  /**
   * Builds the model for micro-batches of `microBatch` samples; with a `loss`, only its layers.
   *
   * @throws {RangeError} when the sizes are not supported.
   */
  build(
    options: ModelOptions<Size>,
  ): BuiltModel | readonly AnyLayer[] | Promise<BuiltModel | readonly AnyLayer[]>;
}

/**
 * Types a model component. A package that does not import Troupe can export the plain object.
 *
 * @example
 * ```ts
 * import { defineModel } from "@troupe/troupe/actors";
 * import { mlp } from "@troupe/troupe/kernels";
 * import assert from "node:assert/strict";
 *
 * export const model = defineModel({
 *   name: "shallow",
 *   version: "1.0.0",
 *   sizes: ["inputs", "classes"],
 *   data: "mnist",
 *   build: ({ hidden, microBatch, data: { inputs, classes } }) =>
 *     mlp({ inputs, hidden, layers: 1, classes }, microBatch),
 * });
 * assert.equal(model.data, "mnist");
 * ```
 */
export function defineModel<const Size extends string = never>(
  component: ModelComponent<Size>,
): ModelComponent<Size> {
  return component;
}

/** Sizes of a model that a script does not say: those of the command. */
export const DEFAULT_SIZES = { layers: 4, hidden: 128, heads: 4, seq: 64 } as const;

/** Returns the options with which a model is built for a script. */
export function scriptModelOptions(
  microBatch: number,
  data: Readonly<Record<string, number>> = {},
): ModelOptions {
  return { ...DEFAULT_SIZES, vocab: data.vocab, tie: false, microBatch, data };
}

/**
 * Checks that data has the sizes that a definition requires.
 *
 * @throws {RangeError} naming the missing ones.
 */
export function checkDataSizes(
  cannot: string,
  { sizes: required = [] }: ModelComponent,
  sizes: Readonly<Record<string, number>> = {},
): void {
  const missing = required.filter((size) => sizes[size] === undefined);
  const must = `the data must have the sizes ${missing.join(" and ")}`;
  assertInput(missing.length === 0, cannot, must, Object.keys(sizes).join(" and ") || "none");
}

/**
 * Builds a model from its definition, with its loss and its metrics.
 *
 * @throws {TypeError} when `build` does not return layers.
 */
export function buildModel(
  definition: ModelComponent,
  options: ModelOptions,
): BuiltModel | Promise<BuiltModel> {
  const built = definition.build(options);
  if (built instanceof Promise) return built.then((one) => completeModel(definition, one, options));
  const samplesOf = (microBatch: number): BuiltModel => {
    const own = { ...options, microBatch };
    return completeModel(definition, definition.build(own) as BuiltModel, own);
  };
  const model = completeModel(definition, built, options);
  return definition.loss ? { withSamples: samplesOf, ...model } : model;
}

function completeModel(
  { name, loss, metrics }: ModelComponent,
  built: BuiltModel | readonly AnyLayer[],
  { microBatch }: ModelOptions,
): BuiltModel {
  const own = Object(built) as Partial<BuiltModel>;
  if (!loss && own.layers) return own as BuiltModel;
  const predicting = own.layers ?? built as readonly AnyLayer[];
  if (!loss || !Array.isArray(predicting) || predicting.length === 0) {
    const right = loss ? "layers beside a loss" : "a model with layers, or there must be a loss";
    const found = loss ? "none" : "layers only";
    const received = Array.isArray(predicting) ? found : typeof predicting;
    throw refusal(`build ${name}`, `build must return ${right}`, received, TypeError);
  }
  return {
    ...{ name, predictions: microBatch, samples: microBatch },
    ...own.layers && own,
    layers: withLossAndMetrics(predicting, loss, metrics, microBatch),
    metrics,
    predicting,
  };
}

/** Micro-batches in order. */
export type Batches = Iterable<Batch> | AsyncIterable<Batch>;

/**
 * Micro-batches that can start at any number, so that a resumed run does not make the earlier ones
 * again.
 *
 * @example Rows by number, and random rows with a state
 * ```ts
 * import type { DataSource } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const rows: DataSource = {
 *   *from(microBatch) {
 *     for (let i = microBatch; i < 100; i++) yield { row: Int32Array.of(i) };
 *   },
 * };
 * const walk = (at = 0): DataSource => ({
 *   *from(_, state = 0) {
 *     for (at = state as number;;) yield { at: Int32Array.of(at = (7 * at + 3) % 101) };
 *   },
 *   state: () => at,
 * });
 *
 * const first = (data: DataSource, state?: unknown) => [...data.from(2, state) as never][0];
 * assert.deepEqual(first(rows), { row: Int32Array.of(2) });
 * ```
 */
export interface DataSource {
  /**
   * Returns the micro-batches from number `microBatch`, in global order: 0 is the first of step 1.
   * It may be called more than once, because the first micro-batch is checked before the run.
   *
   * @param state The result of {@linkcode DataSource.state} after `microBatch` micro-batches, parsed
   * from JSON; undefined without a checkpoint.
   */
  from(microBatch: number, state?: unknown): Batches;
  /**
   * Returns the state that `from` needs besides the number, as a JSON value of at most 65,536
   * characters. It is called after the last micro-batch of a step is taken and before the next one;
   * a checkpoint after that step keeps the state.
   */
  state?(): unknown;
  /** Samples of a micro-batch, for a model that is a definition. */
  readonly samples?: number;
  /** Micro-batches of an epoch, for `epochs`. */
  readonly length?: number;
  /** Sizes of the data for the definition of a model, such as `inputs` and `classes`. */
  readonly sizes?: Readonly<Record<string, number>>;
  /** Names of the classes of the fields that are categories, which checkpoints keep. */
  readonly classes?: Readonly<Record<string, readonly string[]>>;
}

/**
 * Micro-batches in global order. A resumed run makes and drops those of an iterable that earlier
 * steps have used.
 */
export type Data = Batches | DataSource;

/** Returns whether data can start at any micro-batch. */
export const isSource = (data: Data): data is DataSource =>
  typeof (data as Partial<DataSource>)?.from === "function";

/** Returns whether a value can be iterated. */
export const isIterable = (data: unknown): data is Batches => {
  const { [Symbol.iterator]: sync, [Symbol.asyncIterator]: async } = Object(data);
  return typeof sync === "function" || typeof async === "function";
};
