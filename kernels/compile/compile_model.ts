/**
 * A whole model as plain data: its layers compiled, those that are equal once.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { elementCount } from "../graph/shapes.ts";
import type { Model, Tie } from "../layers/layer.ts";
import type { CompileOptions } from "./compile_options.ts";
import { compileLayers, prefixOf } from "./compile_layers.ts";
import { cutModel } from "./cut_model.ts";
import type { LayerProgram } from "./layer_program.ts";
import type { Recompute } from "./saved_values.ts";
import type { StageProgram } from "./stage_program.ts";
import { checkTies } from "../layers/ties.ts";

/** A parameter of a model: its full name and how it starts. */
export interface ModelParameter {
  /** Its full name: `transformer.h.0.ln_1.weight`. */
  readonly name: string;
  /** Its shape. */
  readonly shape: readonly number[];
  /** What its layer says of it. */
  readonly spec: LayerProgram["parameters"][number];
  /** Whether it is not trained. */
  readonly isFrozen: boolean;
}

/** A compiled model. */
export interface ModelProgram extends StageProgram {
  /** The model's name. */
  readonly name: string;
  /** Predictions of one micro-batch. */
  readonly predictions: Model["predictions"];
  /** The parameters of all layers in order, frozen ones among them, aliases of ties not. */
  readonly parameters: readonly ModelParameter[];
  /** Parameters that are held twice but are one. */
  readonly ties: readonly Tie[];
  /** Estimated cost of each layer's forward and backward, in floating-point operations. */
  readonly costs: readonly number[];
  /** For each stage the index of its first layer, where a layout says it. */
  readonly starts?: readonly number[];
}

/**
 * Compiles a model's layers; equal layers share one program.
 *
 * @throws {TypeError} when two parameters have the same name, a tie names none of them or one that
 * is tied already, a value that a layer gives is given twice or taken by none, or as
 * {@linkcode compileLayer}.
 * @throws {RangeError} when a layer takes what no layer before gives: where a later one does, it names
 * the circle.
 * @throws {RangeError} when tied parameters differ in shape, all together are too large, or the tokens
 * of a sample cannot be cut into so many slices.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 4, hidden: 32, heads: 4, seq: 16, vocab: 64 }, 2);
 * const program = compileModel(model, "cheap");
 * assert.equal(program.layers.length, 10);
 * assert.equal(program.programs.length, 4); // embedding, attention, mlp, head
 * ```
 */
export function compileModel(
  model: Pick<
    Model,
    "name" | "layers" | "predictions" | "ties" | "samples" | "withSlices"
  >,
  recompute: Recompute,
  options: CompileOptions = {},
): ModelProgram {
  const { name, predictions, ties = [] } = model;
  const { elementsMax = Infinity, slices = 1 } = options;
  const programs: LayerProgram[] = [], indexOf = new Map<string, number>();
  const layers: StageProgram["layers"][number][] = [];
  const parameters = new Map<string, ModelParameter>();
  const cut = slices > 1 ? cutModel(model, slices) : undefined;
  let elements = 0;
  for (const { layer, compiled } of compileLayers(model, recompute, options, cut)) {
    const prefix = prefixOf(layer), [program] = compiled as [LayerProgram];
    cut?.check(layer, compiled);
    const indices = compiled.map((one) => {
      const key = fingerprint(one);
      if (!indexOf.has(key)) indexOf.set(key, programs.push(one) - 1);
      return indexOf.get(key)!;
    });
    const { name, block } = layer;
    if (program.masks && layers.some((other) => other.name === name)) {
      throw new TypeError(
        `Cannot compile model: names of layers with dropout must be unique, received "${name}" twice`,
      );
    }
    const place = { name, ...block && { block }, prefix, program: indices[0]! };
    layers.push(slices > 1 ? { ...place, slices: indices } : place);
    for (const spec of program.parameters) {
      const name = prefix + spec.name;
      if (parameters.has(name)) {
        throw new TypeError(
          `Cannot compile model: names of parameters must be unique, received "${name}" twice`,
        );
      }
      elements = checkElements(name, spec.shape, elements, elementsMax);
      parameters.set(name, { name, shape: spec.shape, spec, isFrozen: spec.frozen ?? false });
    }
  }
  checkTies(ties, parameters);
  for (const [, alias] of ties) parameters.delete(alias);
  return {
    name,
    predictions,
    programs,
    layers,
    parameters: [...parameters.values()],
    ties,
    costs: costsOf(programs, layers),
    ...cut && { slicing: cut.slicing },
  };
}

/** Estimated work of each layer, that of all slices of a sequence. */
function costsOf(
  programs: readonly LayerProgram[],
  layers: StageProgram["layers"],
): readonly number[] {
  return layers.map(({ program, slices = [program] }) =>
    slices.reduce((sum, one) => {
      const { forward, backward } = programs[one]!.cost;
      return sum + forward + backward;
    }, 0)
  );
}

/** Refuses a model that no device could hold, before anybody allocates it. */
function checkElements(
  name: string,
  shape: readonly number[],
  before: number,
  most: number,
): number {
  const own = elementCount(shape), elements = before + own;
  if (own > most) {
    throw new RangeError(
      `Cannot hold the parameter "${name}": it must have at most ${most} elements, received shape [${shape}]`,
    );
  }
  if (elements <= most) return elements;
  throw new RangeError(
    `Cannot hold the model: its parameters must be at most ${most} numbers, received more up to "${name}"`,
  );
}

/** Equal for layers that are computed and initialised alike. */
function fingerprint({ models, overwrites = [], ...specs }: LayerProgram): string {
  const hash = createHash("sha256").update(JSON.stringify(specs));
  for (const model of Object.values(models)) hash.update(model);
  for (const { saved, model } of overwrites) hash.update(saved).update(model);
  return hash.digest("hex");
}
