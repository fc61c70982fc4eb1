/**
 * What an ONNX file wants of a micro-batch, and what may be trained of it.
 *
 * @module
 */

import { type OnnxInput, readOnnx } from "./file/onnx_graph.ts";
import type { ExternalFiles } from "./file/onnx_tensor.ts";

/** What a file says of itself. */
export interface OnnxDescription {
  /** Its inputs; sizes that a run chooses have names. */
  readonly inputs: readonly OnnxInput[];
  /** The names of its outputs. */
  readonly outputs: readonly string[];
  /** The names of its initializers. */
  readonly initializers: readonly string[];
}

/**
 * Describes a file.
 *
 * @param external files beside it that hold weights, by the names by which it knows them.
 * @throws {TypeError} {@linkcode RangeError} as `fromOnnx`.
 */
export function describeOnnx(bytes: Uint8Array, external: ExternalFiles = {}): OnnxDescription {
  const { inputs, outputs, initializers } = readOnnx(bytes, external);
  return { inputs, outputs, initializers: [...initializers.keys()] };
}
