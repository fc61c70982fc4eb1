/**
 * Files whose tensors are all F32: read, or only looked for.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { resolve } from "node:path";
import {
  decodeFloats,
  readFull,
  readHeader,
  readOpenSafetensors,
  type SafetensorsFile,
  type SafetensorsInfo,
} from "../../../kernels/mod.ts";
import type { PlacedTensor } from "./tensor_source.ts";

/** Tensors of a file by name. */
export interface TensorsOf<T> {
  /** Their elements, or where those lie. */
  readonly values: Map<string, T>;
  /** Their sizes. */
  readonly shapes: Map<string, readonly number[]>;
}

/** Tensors of a file by name, with their elements. */
export type Floats = TensorsOf<Float32Array>;

/** Reads an open file, or looks where its tensors are. */
export type ReadTensors<T> = (file: SafetensorsFile, path: string) => Promise<TensorsOf<T>>;

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

/**
 * Looks where the tensors of an open file lie, all of them F32 and finite.
 *
 * @throws {RangeError} when one has a number that is not.
 */
export async function locateFloats(
  file: SafetensorsFile,
  path: string,
): Promise<TensorsOf<PlacedTensor>> {
  await file.seek(0, Deno.SeekMode.Start);
  const { dataStart, entries } = await readHeader(file, path);
  const values = new Map<string, PlacedTensor>(), shapes = new Map<string, readonly number[]>();
  for (const { name, begin, end, ...info } of entries) {
    checkF32(path, name, info);
    const place = { path: resolve(path), at: dataStart + begin, bytes: end - begin };
    const check = (values: Float32Array) => checkKeepable(path, name, values);
    values.set(name, { kind: "placed", ...place, sha256: await hashPart(file, place, check) });
    shapes.set(name, info.shape);
  }
  return { values, shapes };
}

/** Bytes that are read in one go. */
const PIECE_BYTES = 1 << 20;

/**
 * The hash of a part of a file.
 *
 * @param look gets all of it, as F32, piece by piece.
 * @throws {RangeError} when the file ends before.
 */
export async function hashPart(
  file: SafetensorsFile,
  { path, at, bytes, dtype = "F32" }: Pick<PlacedTensor, "path" | "at" | "bytes" | "dtype">,
  look: (values: Float32Array) => void = () => {},
): Promise<string> {
  const hash = createHash("sha256"), piece = new Uint8Array(Math.min(bytes, PIECE_BYTES));
  await file.seek(at, Deno.SeekMode.Start);
  for (let left = bytes; left > 0; left -= piece.length) {
    const part = piece.subarray(0, left);
    if (!await readFull(file, part)) {
      throw new RangeError(`Cannot read ${path}: it must have ${at + bytes} bytes, was cut`);
    }
    hash.update(part);
    look(decodeFloats(dtype, part));
  }
  return hash.digest("hex");
}

function checkKeepable(path: string, name: string, values: Float32Array): void {
  const least = name.endsWith(".exp_avg_sq") ? 0 : -Infinity;
  const wrong = values.find((value) => !Number.isFinite(value) || value < least);
  if (wrong === undefined) return;
  const must = Number.isFinite(wrong)
    ? "means of squares must be at least 0"
    : "weights and moments must be finite";
  throw new RangeError(
    `Cannot use ${path}: ${must}, received ${wrong} in ${JSON.stringify(name)}`,
  );
}

/** Refuses what is not F32. @throws {TypeError} saying what to do. */
function checkF32(path: string, name: string, { dtype }: SafetensorsInfo): void {
  if (dtype !== "F32") throw wrongDType(path, name, "F32", dtype);
}

/** What is told of a tensor of another dtype than can be read. */
export const wrongDType = (path: string, name: string, must: string, dtype: string): TypeError =>
  new TypeError(
    `Cannot read ${path}: tensor ${
      JSON.stringify(name)
    } must have dtype ${must}, received ${dtype}; convert the file to F32`,
  );

const floatsOf = (data: Uint8Array): Float32Array =>
  new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
