/**
 * What a compiled model asks of a micro-batch, so that a wrong one is told before it is sent.
 *
 * @module
 */

import type { Batch } from "../layers/batch.ts";
import { fieldProblem } from "../layers/model_fields.ts";
import { boundsProblem, fieldBounds } from "../stage/field_bounds.ts";
import type { StageProgram } from "./stage_program.ts";

/** Says what is wrong with a micro-batch; undefined where nothing is. */
export type BatchCheck = (batch: Batch) => string | undefined;

/**
 * Makes the check of a model's micro-batches: the fields that its layers read, their types, lengths
 * and, where a number says which row or class is meant, its bounds.
 *
 * @param halves in which each micro-batch is computed; the model is compiled for one of them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { batchCheck, compileModel, mlp } from "@troupe/troupe/kernels";
 *
 * const model = mlp({ inputs: 2, hidden: 4, layers: 1, classes: 3 }, 1);
 * const check = batchCheck(compileModel(model, "none"));
 * const features = Float32Array.of(0.5, 1);
 * assert.equal(check({ features, labels: Int32Array.of(2) }), undefined);
 * assert.equal(
 *   check({ features, labels: Int32Array.of(3) }),
 *   'the field "labels" must hold whole numbers from -1 to 2, received 3 at position 0',
 * );
 * ```
 */
export function batchCheck(
  { programs, slicing = { slices: 1, samples: 1 } }: Pick<StageProgram, "programs" | "slicing">,
  halves = 1,
): BatchCheck {
  const parts = halves * slicing.slices, divisor = parts * slicing.samples;
  const asked = programs.flatMap((program) => {
    const bounds = fieldBounds(program);
    return program.fields.map((spec) => ({
      spec: { ...spec, shape: spec.shape.map((size, i) => i === 0 ? size * parts : size) },
      bounds: bounds.get(spec.name),
    }));
  });
  return (batch) => {
    for (const { spec } of asked) {
      const problem = fieldProblem(spec, batch);
      if (problem !== undefined) return `it ${problem}`;
    }
    // Others are cut, too.
    for (const [name, { length }] of parts > 1 ? Object.entries(batch) : []) {
      if (Number.isInteger(length / divisor)) continue;
      return `the field "${name}" must be divisible by ${divisor}, received ${length} elements`;
    }
    for (const { spec: { name }, bounds } of asked) {
      const problem = bounds && boundsProblem(name, batch[name]!, bounds);
      if (problem !== undefined) return problem;
    }
  };
}
