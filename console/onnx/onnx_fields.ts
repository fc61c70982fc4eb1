/**
 * What the inputs of an ONNX model read of a micro-batch whose fields have other names.
 *
 * @module
 */

import type { Batch, HostArray, TensorSpec } from "../../kernels/mod.ts";

/** What data calls that which a loss compares with, where nobody says it. */
const LABELS = ["label", "labels", "targets"];

/** What a label is called where nobody says it. */
export const LABEL = LABELS[0]!;

/** Inputs of encoders that data may leave out: what stands for each element, by its place in its row. */
const NEUTRAL: Readonly<Record<string, (column: number) => number>> = {
  attention_mask: () => 1,
  token_type_ids: () => 0,
  position_ids: (column) => column,
};

/**
 * The fields of a model from those of the data: by name; of a label that nobody named also `labels`
 * or `targets`; an attention mask of ones, one type of tokens and their positions where data has
 * none; and the one input that is left from the one field that is left.
 *
 * @param specs what the model reads.
 * @param label which of them is the label.
 * @returns the fields that were found; where one lacks all there is, to be refused.
 */
export function onnxFields(specs: readonly TensorSpec[], label: string, batch: Batch): Batch {
  const from = new Map<string, string>();
  for (const { name } of specs) {
    const known = name === label && label === LABEL ? LABELS : [name];
    const found = known.find((one) => batch[one] !== undefined);
    if (found !== undefined) from.set(name, found);
  }
  const lacking = specs.filter(({ name }) => !from.has(name) && name !== label);
  const inputs = lacking.filter(({ name }) => !Object.hasOwn(NEUTRAL, name));
  const taken = new Set([...from.values(), ...LABELS]);
  const fields = Object.keys(batch).filter((name) => !taken.has(name));
  if (inputs.length === 1 && fields.length === 1) from.set(inputs[0]!.name, fields[0]!);
  const found = specs.flatMap((spec) => {
    const { name } = spec, field = from.get(name);
    if (field !== undefined) return [[name, ofType(spec, batch[field]!)] as const];
    return name !== label && Object.hasOwn(NEUTRAL, name) ? [[name, neutral(spec)] as const] : [];
  });
  const made = Object.fromEntries(found);
  return found.length === specs.length ? made : { ...batch, ...made };
}

/** The arrays of what such a model reads: ids are narrowed. */
const ARRAYS = { f32: Float32Array, i32: Int32Array, bool: Uint8Array } as const;

/** Whole numbers as another type holds them; what cannot be meant stays as it is. */
function ofType({ dtype, shape }: TensorSpec, values: HostArray): HostArray {
  const isWhole = values instanceof Int32Array || values instanceof BigInt64Array ||
    values instanceof Uint8Array;
  const array = ARRAYS[dtype as keyof typeof ARRAYS];
  const isRead = isWhole && array !== undefined && values.length === sizeOf(shape);
  return isRead ? array.from(Array.from<number | bigint, number>(values, Number)) : values;
}

function neutral(spec: TensorSpec): HostArray {
  const { name, shape } = spec, row = shape.at(-1) ?? 1, at = NEUTRAL[name]!;
  return ofType(spec, Int32Array.from({ length: sizeOf(shape) }, (_, i) => at(i % row)));
}

const sizeOf = (shape: readonly number[]) => shape.reduce((product, size) => product * size, 1);
