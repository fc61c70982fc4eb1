/**
 * What a layer is: a name, and a function that builds its forward graph.
 *
 * A model is a list of layers. The first reads the micro-batch's fields, each of the others reads
 * the output of the one before, and the last returns the loss of every sample. Layers become plain
 * data ({@linkcode LayerProgram}), so no code travels to the workers.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import { Graph } from "../graph/graph.ts";
import type { Node, Value } from "../graph/value.ts";
import type { Batch } from "./batch.ts";

/** How a parameter gets its first values; drawn from (seed, parameter name), in any order. */
export type Initializer =
  | { readonly kind: "normal"; readonly deviation: number }
  | { readonly kind: "constant"; readonly value: number };

/** A parameter of a layer: its name within the layer, shape and first values. */
export interface ParameterSpec {
  /** Its name within the layer. */
  readonly name: string;
  /** Its sizes. */
  readonly shape: readonly number[];
  /** Its first values. */
  readonly initializer: Initializer;
  /** Whether it is not trained: it gets no gradient, no moments and no step. */
  readonly frozen?: true;
}

/** The name, dtype and shape of a tensor. */
export interface TensorSpec {
  /** Its name. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes. */
  readonly shape: readonly number[];
}

/** What multiplies a tensor element by element in a dropout: 0, or 1 ÷ (1 − probability). */
export interface MaskSpec extends TensorSpec {
  /** How many of its elements are 0, as a share. */
  readonly probability: number;
}

/**
 * The graph of one layer: {@linkcode Graph} with parameters, fields of the micro-batch and dropout.
 */
export class LayerGraph extends Graph {
  /** The parameters in the order in which they were declared. */
  readonly parameters: { spec: ParameterSpec; value: Value }[] = [];
  /** The fields of the micro-batch that the layer reads. */
  readonly fields: { spec: TensorSpec; value: Value }[] = [];
  /** The masks of its dropouts. */
  readonly masks: { spec: MaskSpec; value: Value }[] = [];

  /** A trained f32 tensor. The default start is normal with deviation 0.02, as in GPT-2. */
  parameter(
    name: string,
    shape: readonly number[],
    initializer: Initializer = { kind: "normal", deviation: 0.02 },
  ): Value {
    const value = this.input(`p.${name}`, shape);
    this.parameters.push({ spec: { name, shape, initializer }, value });
    return value;
  }

  /** A field of the micro-batch, such as token ids or targets. */
  batch(name: string, shape: readonly number[], dtype: DType = "f32"): Value {
    const value = this.input(`batch.${name}`, shape, dtype);
    this.fields.push({ spec: { name, shape, dtype }, value });
    return value;
  }

  /**
   * Dropout (Srivastava et al. 2014): in training each element is 0 with a probability, else divided
   * by what is left of 1, so that its mean stays. In evaluation and generation it is `x`.
   *
   * What is left out follows from the run's seed, the step, the micro-batch, the layer's name and the
   * place in the layer, whoever computes it and how often. The first axis of `x` must be that of
   * samples, or of rows in the order of samples.
   *
   * @throws {RangeError} when the probability is not from 0 and below 1.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { LayerGraph } from "@troupe/troupe/kernels";
   *
   * const g = new LayerGraph(), x = g.input("x", [2, 4]);
   * assert.equal(g.dropout(x, 0), x);
   * assert.deepEqual(g.dropout(x, 0.1).shape, [2, 4]);
   * assert.throws(() => g.dropout(x, 1), /from 0 and below 1, received 1/);
   * ```
   */
  dropout(x: Value, probability: number): Value {
    checkDropout("drop out", probability);
    if (probability === 0) return x;
    const name = `${MASK_PREFIX}${this.masks.length}`, { shape } = x;
    const value = this.input(name, shape);
    this.masks.push({ spec: { name, dtype: "f32", shape, probability }, value });
    return this.mul(x, value);
  }
}

/** Refuses a probability with which nothing would be left, or more than all. */
export function checkDropout(what: string, probability: number): void {
  if (probability >= 0 && probability < 1) return;
  throw new RangeError(
    `Cannot ${what}: dropout must be a number from 0 and below 1, received ${probability}`,
  );
}

/** Names of masks begin so. */
const MASK_PREFIX = "mask.";

/** Whether a node is a dropout, which costs little to compute again. */
export const isDropout = ({ op, inputs }: Node): boolean =>
  op === "Mul" && inputs[1]!.node === undefined && inputs[1]!.name.startsWith(MASK_PREFIX);

/**
 * One layer of a model.
 *
 * @example A dense layer with ReLU
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const dense = (name: string, inputs: number, outputs: number): Layer => ({
 *   name,
 *   build: (g, x) =>
 *     g.relu(g.gemm(
 *       x!,
 *       g.parameter("weight", [inputs, outputs]),
 *       g.parameter("bias", [outputs], { kind: "constant", value: 0 }),
 *     )),
 * });
 *
 * const g = new LayerGraph();
 * const y = dense("hidden", 4, 8).build(g, g.input("x", [2, 4]));
 * assert.deepEqual(y.shape, [2, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["weight", "bias"]);
 * ```
 */
export interface Layer {
  /** What a reader sees: "block 3 attention". */
  readonly name: string;
  /**
   * The block that it is a part of: layers in a row of one block count as one where users count
   * layers, as in an interval of recomputation, but a cut into stages may lie between.
   */
  readonly block?: string;
  /** Put before the names of its parameters; `${name}.` where not given. */
  readonly prefix?: string;
  /**
   * Builds the forward graph. `x` is the output of the layer before, absent for the first. The
   * last layer returns the loss of each sample, f32 [samples], summed over what it predicts.
   */
  build(g: LayerGraph, x: Value | undefined): Value;
}

/** Two parameters that are one: the full names of that which is trained, and of its alias. */
export type Tie = readonly [canonical: string, alias: string];

/** What trains: layers in order, and how many predictions one micro-batch has. */
export interface Model {
  /** The model's name: `gpt`, `mlp`, or one's own. */
  readonly name: string;
  /** The layers; the first reads the micro-batch, the last returns the loss. */
  readonly layers: readonly Layer[];
  /**
   * Predicted tokens (or labels) of one micro-batch, by which the loss is divided; a function where
   * micro-batches differ.
   */
  readonly predictions: number | ((batch: Batch) => number);
  /** Parameters that share one value, such as the tables of the embedding and the head. */
  readonly ties?: readonly Tie[];
  /** Samples of a micro-batch, B. */
  readonly samples?: number;
  /** The same model, parameters included, for micro-batches of another size. */
  readonly withSamples?: (samples: number) => Model;
}
