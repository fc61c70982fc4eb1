/**
 * What a layer is: a name, and a function that builds its forward graph.
 *
 * A model is a list of layers. The first reads the micro-batch's fields, each of the others reads
 * the output of the one before, and the last returns the loss of every sample. Layers become plain
 * data ({@linkcode LayerProgram}), so no code travels to the workers.
 *
 * @module
 */

import type { DType, HostArray } from "./device.ts";
import { Graph, type Value } from "./graph.ts";

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

/** The named arrays of one micro-batch, as a model's layers ask for them. */
export type Batch = { readonly [field: string]: HostArray };

/** The graph of one layer: {@linkcode Graph} with parameters and fields of the micro-batch. */
export class LayerGraph extends Graph {
  /** The parameters in the order in which they were declared. */
  readonly parameters: { spec: ParameterSpec; value: Value }[] = [];
  /** The fields of the micro-batch that the layer reads. */
  readonly fields: { spec: TensorSpec; value: Value }[] = [];

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
}

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
  /** What a reader sees: "block 3". */
  readonly name: string;
  /** Put before the names of its parameters; `${name}.` where not given. */
  readonly prefix?: string;
  /**
   * Builds the forward graph. `x` is the output of the layer before, absent for the first. The
   * last layer returns the loss of each sample, f32 [samples], summed over what it predicts.
   */
  build(g: LayerGraph, x: Value | undefined): Value;
}

/** What trains: layers in order, and how many predictions one micro-batch has. */
export interface Model {
  /** The model's name: `gpt`, `mlp`, or one's own. */
  readonly name: string;
  /** The layers; the first reads the micro-batch, the last returns the loss. */
  readonly layers: readonly Layer[];
  /** Predicted tokens (or labels) of one micro-batch: the loss is divided by their number. */
  readonly predictions: number;
}
