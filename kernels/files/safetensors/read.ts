/**
 * Reads safetensors files.
 *
 * @module
 */

import { checkInputFile } from "../input_file.ts";
import { type SafetensorsInfo, type SafetensorsMetadata, show } from "./format.ts";
import { readFull, readHeader, type SafetensorsFile } from "./header.ts";

/** A tensor that was read. `data` starts at offset 0 of a buffer of its own, unless it was placed. */
export interface LoadedTensor extends SafetensorsInfo {
  /** Its elements as bytes. */
  readonly data: Uint8Array<ArrayBufferLike>;
}

/**
 * Reads a file, each tensor straight into the memory that `place` returns for it: by default a new
 * buffer; `undefined` skips the tensor.
 *
 * @throws {SyntaxError} when the header is not what the format allows.
 * @throws {RangeError} when sizes or offsets disagree with each other or with the file.
 * @throws {TypeError} when the path names no regular file.
 * @throws {Deno.errors.NotFound} when there is no such file.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeSafetensors, readSafetensors } from "@troupe/troupe/kernels";
 *
 * const file = await Deno.makeTempFile();
 * const weight = { dtype: "F32", shape: [2], data: Float32Array.of(1, 2) } as const;
 * await Deno.writeFile(file, encodeSafetensors(new Map([["used", weight], ["buffer", weight]])));
 * const bucket = new Float32Array(4);
 * const { tensors } = await readSafetensors(
 *   file,
 *   (name) => name === "used" ? new Uint8Array(bucket.buffer, 8, 8) : undefined,
 * );
 * assert.deepEqual([...tensors.keys()], ["used"]);
 * assert.deepEqual(bucket, Float32Array.of(0, 0, 1, 2));
 * await Deno.remove(file);
 * ```
 */
export async function readSafetensors(
  path: string,
  place: PlaceTensor = (_name, _info, bytes) => new Uint8Array(bytes),
): Promise<{ tensors: Map<string, LoadedTensor>; metadata: SafetensorsMetadata }> {
  checkInputFile(path);
  using file = await Deno.open(path);
  return await readOpenSafetensors(file, path, place);
}

/** Reports a failed allocation by the name of its tensor. */
function placed(
  place: () => Uint8Array | undefined,
  path: string,
  name: string,
  bytes: number,
): Uint8Array | undefined {
  try {
    return place();
  } catch (cause) {
    if (!(cause instanceof RangeError) || !/allocation failed|array length/i.test(cause.message)) {
      throw cause;
    }
    throw new RangeError(
      `Cannot read tensor ${
        show(name)
      } of ${path}: it must fit into memory, received ${bytes} bytes`,
      { cause },
    );
  }
}

/** What a reader does with each tensor: gives it memory, or `undefined` to skip it. */
export type PlaceTensor = (
  name: string,
  info: SafetensorsInfo,
  bytes: number,
) => Uint8Array | undefined;

/**
 * Reads a file that is open already, as {@linkcode readSafetensors} does.
 *
 * @param path for messages.
 * @throws as {@linkcode readSafetensors}.
 */
export async function readOpenSafetensors(
  file: SafetensorsFile,
  path: string,
  place: PlaceTensor,
): Promise<{ tensors: Map<string, LoadedTensor>; metadata: SafetensorsMetadata }> {
  await file.seek(0, Deno.SeekMode.Start);
  const { dataStart, entries, metadata } = await readHeader(file, path);
  const tensors = new Map<string, LoadedTensor>();
  for (const { name, dtype, shape, begin, end } of entries) {
    const bytes = end - begin;
    const data = placed(() => place(name, { dtype, shape }, bytes), path, name, bytes);
    if (data === undefined) continue;
    if (data.length !== bytes) {
      throw new RangeError(
        `Cannot place tensor ${show(name)} of ${path}: its memory must be ${bytes} bytes, ` +
          `received ${data.length}`,
      );
    }
    await file.seek(dataStart + begin, Deno.SeekMode.Start);
    if (!await readFull(file, data)) {
      throw new RangeError(
        `Cannot read ${path}: tensor ${show(name)} must end at byte ${dataStart + end}, ` +
          `received a file that was cut while it was read`,
      );
    }
    tensors.set(name, { dtype, shape, data });
  }
  return { tensors, metadata };
}
