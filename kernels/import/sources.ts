/**
 * The values of a file in a graph: what nodes read by name.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import type { LayerGraph, TensorSpec } from "../layers/layer.ts";
import type { Constant } from "./file/onnx_tensor.ts";

/** A weight of a file. */
export interface Weight {
  readonly shape: readonly number[];
  /** With what it begins. */
  readonly data: Float32Array;
  /** Whether it is not trained. */
  readonly isFrozen: boolean;
}

/** What the graph of any layer can have of a file, by name. */
export interface SourceTables {
  readonly inputs: ReadonlyMap<string, TensorSpec>;
  readonly weights: ReadonlyMap<string, Weight>;
  readonly constants: ReadonlyMap<string, Constant>;
}

/** Finds values by name, in one graph. */
export interface Sources {
  /** Undefined where the file has none of that name, as far as it is known. */
  get(name: string): Value | undefined;
  set(name: string, value: Value): void;
}

/**
 * Opens the sources of a graph: each becomes a part of it when it is asked for.
 *
 * [Note: whole numbers] Exporters write ids as int64. Their fields are int32 as everywhere in Troupe,
 * and are widened where they are read.
 *
 * @param parameterOf what the graph calls a weight.
 */
export function openSources(
  g: LayerGraph,
  { inputs, weights, constants }: SourceTables,
  parameterOf: (weight: string) => string = (weight) => weight,
): Sources {
  const values = new Map<string, Value>();
  const make = (name: string): Value | undefined => {
    const constant = constants.get(name);
    if (constant) return g.constant(constant.data, constant.shape, constant.dtype);
    const weight = weights.get(name);
    if (weight) return parameter(g, parameterOf(name), weight);
    const field = inputs.get(name);
    if (!field) return undefined;
    const { dtype, shape } = field;
    return dtype === "i64"
      ? g.cast(g.batch(name, shape, "i32"), "i64")
      : g.batch(name, shape, dtype);
  };
  return {
    get(name) {
      const value = values.get(name) ?? make(name);
      if (value) values.set(name, value);
      return value;
    },
    set: (name, value) => void values.set(name, value),
  };
}

function parameter(g: LayerGraph, name: string, { shape, isFrozen }: Weight): Value {
  const value = g.parameter(name, shape);
  const declared = g.parameters.at(-1)!;
  if (isFrozen) declared.spec = { ...declared.spec, frozen: true };
  return value;
}
