/**
 * Weights by name: their hash, and files that hold them.
 *
 * @module
 */

import { createHash } from "node:crypto";
import {
  elementCount,
  type ModelParameter,
  readOpenSafetensors,
  readSafetensors,
  type SafetensorsFile,
  type SafetensorsInfo,
  sameShape,
  type Tie,
} from "../../kernels/mod.ts";

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

/** Tensors of a file by name. */
export interface Floats {
  /** Their elements. */
  readonly values: Map<string, Float32Array>;
  /** Their sizes. */
  readonly shapes: Map<string, readonly number[]>;
}

/** Reads an open file whose tensors are all F32. */
export async function readFloats(file: SafetensorsFile, path: string): Promise<Floats> {
  const { tensors } = await readOpenSafetensors(file, path, (name, info, bytes) => {
    checkF32(path, name, info);
    return new Uint8Array(bytes);
  });
  return {
    values: new Map([...tensors].map(([name, { data }]) => [name, floatsOf(data)])),
    shapes: new Map([...tensors].map(([name, { shape }]) => [name, shape])),
  };
}

function checkF32(path: string, name: string, { dtype }: SafetensorsInfo): void {
  if (dtype === "F32") return;
  throw new TypeError(
    `Cannot read ${path}: tensor ${
      JSON.stringify(name)
    } must have dtype F32, received ${dtype}; convert the file to F32`,
  );
}

const floatsOf = (data: Uint8Array): Float32Array =>
  new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);

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
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  const parameterOf = (name: string) => byName.get(name) ?? byName.get(`transformer.${name}`);
  // Each tensor is checked before it takes memory.
  const { tensors } = await readSafetensors(path, (name, info, bytes) => {
    if (IGNORED.test(name) || aliases.has(name)) return undefined;
    const parameter = parameterOf(name);
    if (!parameter) {
      throw new TypeError(
        `Cannot read weights from ${path}: every tensor must be a parameter of the model, received ${
          JSON.stringify(name)
        }; is it a file of another model?`,
      );
    }
    checkF32(path, name, info);
    checkFit(path, name, parameter, info.shape);
    return new Uint8Array(bytes);
  });
  const weights = new Map<string, Float32Array>();
  for (const [name, { data }] of tensors) {
    const parameter = parameterOf(name)!;
    weights.set(parameter.name, floatsOf(data).slice(0, elementCount(parameter.shape)));
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

/** The rows of positions that a file may have beyond those of the model: GPT-2 has 1,024. */
const ROWS_MAX = 65_536;

/** A tensor must have the shape of its parameter; positions may have more rows. */
function checkFit(
  path: string,
  name: string,
  parameter: Pick<ModelParameter, "name" | "shape">,
  received: readonly number[],
): void {
  const { shape } = parameter, [rows = 1] = shape, [given = 1, ...rest] = received;
  const isCut = parameter.name.endsWith("wpe.weight") && given > rows && given <= ROWS_MAX;
  if (sameShape(isCut ? [rows, ...rest] : received, shape)) return;
  throw new RangeError(
    `Cannot read weights from ${path}: "${name}" must have shape [${shape}], received [${received}]`,
  );
}
