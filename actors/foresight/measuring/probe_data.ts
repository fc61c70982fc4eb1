/**
 * Weights and micro-batches to measure with: drawn, as their values do not matter.
 *
 * @module
 */

import {
  type Batch,
  elementCount,
  initialValues,
  type ModelProgram,
  type StageState,
  substream,
  withAliases,
} from "../../../kernels/mod.ts";
import { fieldBounds } from "../../../kernels/stage/field_bounds.ts";

const SEED = 1;

/** First weights of a model, by full name, those of aliases among them. */
export function drawWeights({ parameters, ties }: ModelProgram): StageState["weights"] {
  const weights = new Map(
    parameters.map(({ name, spec }) => [name, initialValues(spec, name, SEED)] as const),
  );
  return withAliases({ weights, moments: new Map() }, ties).weights;
}

/** A micro-batch for a model: of whole numbers those that say which row or class there is. */
export function drawBatch({ programs }: ModelProgram): Batch {
  const fields: Record<string, Batch[string]> = {};
  for (const program of programs) {
    const bounds = fieldBounds(program);
    for (const { name, dtype, shape } of program.fields) {
      const generator = substream(SEED, name), length = elementCount(shape);
      const [, most] = bounds.get(name) ?? [0, 0];
      const draw = () => (generator.next() >>> 0) % (most + 1);
      fields[name] = dtype === "i32"
        ? Int32Array.from({ length }, draw)
        : dtype === "f32"
        ? Float32Array.from({ length }, () => (generator.next() >>> 0) / 2 ** 32)
        : otherField(name, dtype);
    }
  }
  return fields;
}

function otherField(name: string, dtype: string): never {
  throw new TypeError(
    `Cannot measure the model: its field "${name}" must be of f32 or i32, received ${dtype}`,
  );
}
