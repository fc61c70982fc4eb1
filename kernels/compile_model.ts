/**
 * A whole model as plain data, and its cut into stages.
 *
 * @module
 */

import { createHash } from "node:crypto";
import type { Model, TensorSpec } from "./layer.ts";
import { partition } from "./partition.ts";
import { compileLayer, type LayerProgram, PORTS, type Recompute } from "./program.ts";
import type { StageProgram } from "./stage.ts";

/** A parameter of a model: its full name and how it starts. */
export interface ModelParameter {
  /** Its full name: `transformer.h.0.ln_1.weight`. */
  readonly name: string;
  /** Its shape. */
  readonly shape: readonly number[];
  /** What its layer says of it. */
  readonly spec: LayerProgram["parameters"][number];
}

/** A compiled model. */
export interface ModelProgram extends StageProgram {
  /** The model's name. */
  readonly name: string;
  /** Predictions of one micro-batch. */
  readonly predictions: number;
  /** The parameters of all layers, in order. */
  readonly parameters: readonly ModelParameter[];
  /** Estimated cost of each layer's forward and backward, in floating-point operations. */
  readonly costs: readonly number[];
}

/**
 * Compiles a model's layers; equal layers share one program.
 *
 * @throws {TypeError} when two parameters have the same name, or as {@linkcode compileLayer}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 4, hidden: 32, heads: 4, seq: 16, vocab: 64 }, 2);
 * const program = compileModel(model, "cheap");
 * assert.equal(program.layers.length, 6);
 * assert.equal(program.programs.length, 3); // embedding, block, head
 * ```
 */
export function compileModel(
  model: Pick<Model, "name" | "layers" | "predictions">,
  recompute: Recompute,
  options: { endsWithLoss: boolean } = { endsWithLoss: true },
): ModelProgram {
  const programs: LayerProgram[] = [], indexOf = new Map<string, number>();
  const layers: StageProgram["layers"][number][] = [];
  const parameters = new Map<string, ModelParameter>();
  let input: TensorSpec | undefined;
  for (const [i, layer] of model.layers.entries()) {
    const isLoss = options.endsWithLoss && i === model.layers.length - 1;
    const program = compileLayer(layer, input, { isLoss, recompute });
    const key = fingerprint(program);
    if (!indexOf.has(key)) indexOf.set(key, programs.push(program) - 1);
    const prefix = layer.prefix ?? `${layer.name}.`;
    layers.push({ name: layer.name, prefix, program: indexOf.get(key)! });
    for (const spec of program.parameters) {
      const name = prefix + spec.name;
      if (parameters.has(name)) {
        throw new TypeError(
          `Cannot compile model: names of parameters must be unique, received "${name}" twice`,
        );
      }
      parameters.set(name, { name, shape: spec.shape, spec });
    }
    input = { ...program.output, name: PORTS.input };
  }
  const costs = layers.map(({ program }) => {
    const { forward, backward } = programs[program]!.cost;
    return forward + backward;
  });
  const { name, predictions } = model;
  return { name, predictions, programs, layers, parameters: [...parameters.values()], costs };
}

/** Equal for layers that are computed and initialised alike. */
function fingerprint({ models, ...specs }: LayerProgram): string {
  const hash = createHash("sha256").update(JSON.stringify(specs));
  for (const model of Object.values(models)) hash.update(model);
  return hash.digest("hex");
}

/**
 * Cuts a model into stages of nearly equal cost.
 *
 * @throws {RangeError} when the model has fewer layers than stages are asked for.
 */
export function cutIntoStages(model: ModelProgram, stages: number): StageProgram[] {
  const starts = partition(model.costs, stages);
  return starts.map((start, i) => {
    const layers = model.layers.slice(start, starts[i + 1] ?? model.layers.length);
    const used = [...new Set(layers.map(({ program }) => program))];
    return {
      programs: used.map((index) => model.programs[index]!),
      layers: layers.map((layer) => ({ ...layer, program: used.indexOf(layer.program) })),
    };
  });
}
