/**
 * Slices and lengths of a model's sequences: its layers, and the checks that they are alike.
 *
 * @module
 */

import { lengthsOf, type Slicing } from "../batch.ts";
import { elementCount } from "../graph/shapes.ts";
import { type AnyLayer, type Model, modelFields, type TensorSpec } from "../layers/layer.ts";
import { type LayerProgram, outputsOf } from "./programs.ts";

/** The layers of a model with sliced sequences. */
export interface CutModel {
  /** The layers; each is compiled for every slice. */
  readonly layers: readonly AnyLayer[];
  readonly slicing: Slicing;
  /**
   * Checks the programs of a layer for all slices.
   *
   * @throws {TypeError} with the name of the layer, when they differ where they must not.
   */
  check(layer: AnyLayer, slices: readonly LayerProgram[]): void;
}

/**
 * Cuts the sequences of a model.
 *
 * @throws {TypeError} when its samples are not sequences, or their number is unknown.
 * @throws {RangeError} when their tokens are not divisible by `slices`.
 */
export function cutModel(
  model: Pick<Model, "name" | "layers" | "samples" | "withSlices">,
  slices: number,
): CutModel {
  const { name, samples, withSlices } = model;
  if (!withSlices || samples === undefined) {
    const lacks = withSlices ? "samples" : "withSlices";
    throw new TypeError(
      `Cannot cut sequences into ${slices} slices: the model must have sequences, and say so with withSlices and samples; received ${name} without ${lacks}`,
    );
  }
  const whole = new Map(modelFields(model).map((spec) => [spec.name, spec]));
  return {
    layers: withSlices(slices),
    slicing: { slices, samples },
    check(layer, compiled) {
      const refuse = (must: string) => {
        throw new TypeError(
          `Cannot cut the layer ${JSON.stringify(layer.name)} into ${slices} slices: ${must}`,
        );
      };
      const shared = compiled.map((program) =>
        JSON.stringify([program.parameters, outputsOf(program), program.isLoss])
      );
      if (new Set(shared).size > 1) {
        refuse("its parameters and its output must be alike in all slices");
      }
      for (const field of compiled.flatMap(({ fields }) => fields)) {
        if (isCut(field, whole.get(field.name), slices)) continue;
        refuse(
          `of its field "${field.name}" each slice must have one part of ${slices}, received [${field.shape}] of [${
            whole.get(field.name)?.shape ?? ""
          }]`,
        );
      }
    },
  };
}

const isCut = (own: TensorSpec, whole: TensorSpec | undefined, slices: number) =>
  whole !== undefined && elementCount(own.shape) * slices === elementCount(whole.shape);

/**
 * Returns a model for each of its lengths, the longest first.
 *
 * @throws {TypeError} when its samples are not sequences, or their length is unknown.
 */
export function modelsOfLengths<M extends Pick<Model, "name" | "length" | "withLength">>(
  model: M,
): readonly (M | Model)[] {
  const { name, length, withLength } = model;
  if (length !== undefined && withLength) {
    return [model, ...lengthsOf(length).slice(1).map(withLength)];
  }
  throw new TypeError(
    `Cannot train on samples of different lengths: the model must have sequences, and say so with withLength and length; received ${name} without ${
      withLength ? "length" : "withLength"
    }`,
  );
}
