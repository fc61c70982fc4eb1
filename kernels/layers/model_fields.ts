/**
 * Which fields of a micro-batch a model reads, and whether a micro-batch has them.
 *
 * @module
 */

import { HOST_ARRAYS } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import type { Batch } from "./batch.ts";
import { buildLayer, handedValues, inputsLike } from "./build_layer.ts";
import { LayerGraph, type Model, type TensorSpec } from "./layer.ts";

/**
 * The fields that the layers of a model read, each once.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mlp, modelFields } from "@troupe/troupe/kernels";
 *
 * const model = mlp({ inputs: 4, hidden: 8, layers: 1, classes: 2 }, 3);
 * assert.deepEqual(modelFields(model), [
 *   { name: "features", shape: [3, 4], dtype: "f32" },
 *   { name: "labels", shape: [3], dtype: "i32" },
 * ]);
 * ```
 */
export function modelFields(model: Pick<Model, "layers">): readonly TensorSpec[] {
  const fields = new Map<string, TensorSpec>();
  for (const g of graphsOf(model)) {
    for (const { spec } of g.fields) fields.set(spec.name, spec);
  }
  return [...fields.values()];
}

/** Whether a layer of a model leaves elements out in training. */
export const hasDropout = (model: Pick<Model, "layers">): boolean =>
  graphsOf(model).some((g) => g.masks.length > 0);

function graphsOf({ layers }: Pick<Model, "layers">): LayerGraph[] {
  const given = new Map<string, Value>();
  let handed: readonly TensorSpec[] | undefined;
  return layers.map((layer) => {
    const g = new LayerGraph(undefined, given);
    const y = buildLayer(layer, g, handed && inputsLike(g, handed));
    handed = handedValues(y).map(([name, { dtype, shape }]) => ({ name, dtype, shape }));
    for (const [name, value] of g.gives) given.set(name, value);
    return g;
  });
}

/**
 * What a micro-batch lacks of a field, in words: what it must have, and what it has.
 *
 * @returns undefined where nothing is lacking.
 */
export function fieldProblem({ name, dtype, shape }: TensorSpec, batch: Batch): string | undefined {
  const array = HOST_ARRAYS[dtype], elements = elementCount(shape), values: unknown = batch[name];
  const must = `must have the field "${name}", ${array.name} of [${shape}] (${elements} elements)`;
  if (values === undefined) {
    const names = Object.keys(batch).slice(0, 20);
    return `${must}, received ${names.join(", ").slice(0, 200) || "no field"}`;
  }
  if (values instanceof array && values.length === elements) return undefined;
  return `${must}, received ${kindOf(values)}`;
}

/** A value in a word or two, whatever it is. */
function kindOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value).slice(0, 100);
  const { length } = value as { length?: unknown };
  const kind = Object.prototype.toString.call(value).slice("[object ".length, -1);
  return typeof length === "number" ? `${kind} of ${length}` : kind;
}
