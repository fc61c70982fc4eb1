/**
 * Weights by name: their hash, and files that hold them.
 *
 * @module
 */

import { createHash } from "node:crypto";
import {
  type LoadedTensor,
  type ModelParameter,
  readSafetensors,
  type Tie,
} from "../kernels/mod.ts";
import type { Disk } from "./disk.ts";

/**
 * SHA-256 of all parameters' F32 bytes in the order of their names, in hexadecimal.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { hashWeights } from "@troupe/troupe/actors";
 *
 * const [a, b] = [Float32Array.of(1), Float32Array.of(2)];
 * assert.equal(hashWeights(new Map([["a", a], ["b", b]])), hashWeights(new Map([["b", b], ["a", a]])));
 * ```
 */
export function hashWeights(weights: ReadonlyMap<string, Float32Array>): string {
  const hash = createHash("sha256");
  for (const name of [...weights.keys()].sort()) hash.update(bytesOf(weights.get(name)!));
  return hash.digest("hex");
}

/** The bytes of an array. */
export function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** Reads a file whose tensors are all F32. */
export async function readFloats(
  path: string,
  disk: Pick<Disk, "open"> = Deno,
): Promise<Map<string, Float32Array>> {
  const { tensors } = await readSafetensors(path, undefined, disk);
  return new Map([...tensors].map(([name, tensor]) => [name, floatsOf(path, name, tensor)]));
}

function floatsOf(path: string, name: string, { dtype, data }: LoadedTensor): Float32Array {
  if (dtype !== "F32") {
    throw new TypeError(
      `Cannot read ${path}: tensor "${name}" must have dtype F32, received ${dtype}; convert the file to F32`,
    );
  }
  return new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
}

/** Buffers that Hugging Face's GPT-2 files carry beside the parameters: causal masks. */
const IGNORED = /(^|\.)attn\.(masked_)?bias$/;

/**
 * Reads weights for a model from a safetensors file, such as Hugging Face's GPT-2: names with or
 * without `transformer.`, `attn.bias` buffers ignored, tables with more rows than the model has
 * (positions) cut to its rows, aliases of ties passed over.
 *
 * @throws {TypeError} when a parameter is missing, a tensor is unknown, or a dtype is not F32.
 * @throws {RangeError} when a shape differs.
 * @throws {SyntaxError} when the file is not a safetensors file.
 */
export async function readWeights(
  path: string,
  parameters: readonly Pick<ModelParameter, "name" | "shape">[],
  ties: readonly Tie[] = [],
): Promise<Map<string, Float32Array>> {
  const aliases = new Set(ties.map(([, alias]) => alias));
  const { tensors } = await readSafetensors(path);
  const weights = new Map<string, Float32Array>();
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  for (const [name, tensor] of tensors) {
    if (IGNORED.test(name) || aliases.has(name)) continue;
    const parameter = byName.get(name) ?? byName.get(`transformer.${name}`);
    if (!parameter) {
      throw new TypeError(
        `Cannot read weights from ${path}: every tensor must be a parameter of the model, received "${name}"; is it a file of another model?`,
      );
    }
    weights.set(parameter.name, fit(path, name, parameter, tensor));
  }
  for (const { name } of parameters) {
    if (weights.has(name)) continue;
    const tied = name === "lm_head.weight"
      ? "; is it of a model with tied embeddings (--tie)?"
      : "";
    throw new TypeError(`Cannot read weights from ${path}: it must hold "${name}"${tied}`);
  }
  return weights;
}

/** The rows of a tensor that a parameter needs. */
function fit(
  path: string,
  name: string,
  parameter: Pick<ModelParameter, "name" | "shape">,
  tensor: LoadedTensor,
): Float32Array {
  const { shape } = parameter;
  const [rows = 1, ...rest] = shape;
  const isCut = parameter.name.endsWith("wpe.weight") && tensor.shape[0]! > rows;
  const received = isCut ? [rows, ...tensor.shape.slice(1)] : tensor.shape;
  if (received.length !== shape.length || received.some((size, i) => size !== shape[i])) {
    throw new RangeError(
      `Cannot read weights from ${path}: "${name}" must have shape [${shape}], received [${tensor.shape}]`,
    );
  }
  const count = rest.reduce((a, b) => a * b, rows);
  return floatsOf(path, name, tensor).slice(0, count);
}
