/**
 * What a module exports as `model`: how a model is built for a run.
 *
 * @module
 */

import type { AnyLayer, Batch, DeviceChoice, Model, Predictor, Tie } from "../../kernels/mod.ts";
import type { OpenedData } from "./data_part.ts";

/** What a model is built for: sizes as the flags of `troupe train` give them, and its data. */
export interface ModelOptions<Size extends string = string> {
  /** Blocks, or hidden layers. */
  readonly layers: number;
  /** Width of the layers. */
  readonly hidden: number;
  /** Attention heads. */
  readonly heads: number;
  /** Experts of a mixture, where that was given. */
  readonly experts?: number | undefined;
  /** Attention heads of keys and values, where that was given. */
  readonly keyValueHeads?: number | undefined;
  /** Width within a feed-forward network, where that was given. */
  readonly intermediate?: number | undefined;
  /** Base of the angles of rotary positions, where that was given. */
  readonly ropeTheta?: number | undefined;
  /** Added to the mean square in a norm, where that was given. */
  readonly normEpsilon?: number | undefined;
  /** Tokens of a sample. */
  readonly seq: number;
  /** Number of token ids, where that was given. */
  readonly vocab: number | undefined;
  /** Whether the head's weight is that of the token embedding. */
  readonly tie: boolean;
  /** Layers that share the head, each with a slice of the vocabulary; 1 where not given. */
  readonly headSlices?: number | undefined;
  /** Share of the elements that dropout leaves out in training; 0 where not given. */
  readonly dropout?: number | undefined;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** Sizes that the data says of itself: all those that the part asks for, and maybe more. */
  readonly data: Readonly<Record<Size, number>>;
}

/** A model of a part, with what a checkpoint says of it and what it can show. */
export interface BuiltModel extends Model {
  /** What a checkpoint's `config.json` says of the model; `architecture` is its name by default. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** The same layers but that the last predicts: what {@linkcode openPredictor} takes. */
  readonly predicting?: readonly AnyLayer[];
  /** What its layers read of a micro-batch of the data, where that has other fields. */
  fieldsOf?(batch: Batch): Batch;
  /** The bytes of an ONNX file with trained weights, where the model is one of such a file. */
  onnx?(weights: ReadonlyMap<string, Float32Array>): Uint8Array;
  /** Says what trained weights can do, in words to print after a run. */
  show?(trained: Trained): Promise<string | undefined>;
}

/** A run that has ended, for those who show what was learnt. */
export interface Trained {
  /** The weights by name. */
  readonly weights: ReadonlyMap<string, Float32Array>;
  /** What computed them. */
  readonly device: DeviceChoice;
  /** What they were learnt from. */
  readonly data: OpenedData;
  /** The seed of the run. */
  readonly seed: number;
  /** Opens layers whose last one predicts, with the weights; closed by whoever called. */
  predict(layers: readonly AnyLayer[], ties?: readonly Tie[]): Promise<Predictor>;
}

/**
 * A model that a module exports by the name `model`, found by a name in a registry or by the
 * module's specifier: `troupe train --model jsr:@you/model`.
 *
 * @typeParam Size the sizes of its data that it must know: `vocab` of tokens, `inputs` and `classes`
 * of samples, or others.
 */
export interface ModelPart<Size extends string = string> {
  /** What it is called: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Its version, as people read it. */
  readonly version: string;
  /** The sizes of its data that it must know; data that does not say them is refused. */
  readonly sizes?: readonly Size[];
  /** The data that it learns from where none is named. Default: it must be named. */
  readonly data?: string;
  /**
   * Builds the model for micro-batches of `microBatch` samples.
   *
   * @throws {RangeError} when it cannot have such sizes.
   */
  build(options: ModelOptions<Size>): BuiltModel | Promise<BuiltModel>;
}

/**
 * Gives a model part its types. A package that does not want to import Troupe exports the same
 * record as it is.
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
  part: ModelPart<Size>,
): ModelPart<Size> {
  return part;
}
