/**
 * The largest value of a model: what is computed in between needs a buffer too.
 *
 * @module
 */

import { type DType, DTYPE_BYTES } from "../../device.ts";
import { elementCount } from "../../../graph/shapes.ts";
import type { ValueType } from "../../../onnx/value_types.ts";

/** A value of a model: an input, an output, a constant, or what is computed in between. */
export interface ModelValue {
  /** Its name in the model. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes. */
  readonly shape: readonly number[];
  /** Bytes of its tensor. */
  readonly byteLength: number;
}

/** The largest of the values whose shapes are known; undefined where none is. */
export function largestValue(types: ReadonlyMap<string, ValueType>): ModelValue | undefined {
  let largest: ModelValue | undefined;
  for (const [name, { dtype, shape }] of types) {
    const byteLength = elementCount(shape) * DTYPE_BYTES[dtype];
    if (byteLength > (largest?.byteLength ?? -1)) largest = { name, dtype, shape, byteLength };
  }
  return largest;
}
