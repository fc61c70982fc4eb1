/**
 * Writes safetensors files.
 *
 * @module
 */

import {
  describe,
  isDType,
  isSizes,
  METADATA_KEY,
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsDType,
  type SafetensorsInfo,
  type SafetensorsMetadata,
  show,
  tensorBytes,
} from "./format.ts";

/** A tensor to be written: its description and its little-endian elements, row by row. */
export interface SafetensorsTensor extends SafetensorsInfo {
  /** Its elements. */
  readonly data: ArrayBufferView;
}

/** What a writer puts in a file: the header, then the bytes of each of `names` in that order. */
export interface SafetensorsLayout {
  /** Header length, JSON and padding; a multiple of 8 bytes. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** The tensors in file order. */
  readonly names: readonly string[];
  /** Size of the whole file. */
  readonly fileBytes: number;
}

/**
 * Lays out a file without touching tensor data, so that a writer can stream tensors one at a time.
 *
 * Names are sorted within an element size, wider elements first: every tensor is then aligned to
 * its elements, as the reference implementation does.
 *
 * @throws {TypeError} when a tensor has the reserved name `__metadata__` or an unknown dtype.
 * @throws {RangeError} when a shape holds anything but whole numbers from 0.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { layoutSafetensors } from "@troupe/troupe/kernels";
 *
 * const layout = layoutSafetensors(
 *   new Map([
 *     ["b", { dtype: "F32", shape: [2] }],
 *     ["a", { dtype: "F32", shape: [3] }],
 *   ]),
 * );
 * assert.deepEqual(layout.names, ["a", "b"]);
 * assert.equal(layout.fileBytes, layout.header.length + 20);
 * ```
 */
export function layoutSafetensors(
  tensors: ReadonlyMap<string, SafetensorsInfo>,
  metadata: SafetensorsMetadata = {},
): SafetensorsLayout {
  const elementBytes = (name: string) => SAFETENSORS_DTYPE_BYTES[tensors.get(name)!.dtype];
  const names = [...tensors.keys()].sort((a, b) =>
    elementBytes(b) - elementBytes(a) || (a < b ? -1 : 1)
  );
  // Written by hand, because objects would move names that look like numbers to the front.
  const fields: string[] = [];
  if (Object.keys(metadata).length > 0) {
    fields.push(`"${METADATA_KEY}":${JSON.stringify(metadata)}`);
  }
  let offset = 0;
  for (const name of names) {
    const { dtype, shape } = tensors.get(name)!;
    const end = offset + bytesToWrite(name, dtype, shape);
    const entry = JSON.stringify({ dtype, shape, data_offsets: [offset, end] });
    fields.push(`${JSON.stringify(name)}:${entry}`);
    offset = end;
  }
  const json = new TextEncoder().encode(`{${fields.join(",")}}`);
  const jsonBytes = Math.ceil(json.length / 8) * 8;
  const header = new Uint8Array(8 + jsonBytes).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(jsonBytes), true);
  header.set(json, 8);
  return { header, names, fileBytes: header.length + offset };
}

/**
 * Encodes a whole file in memory. Use {@linkcode layoutSafetensors} for files too big to copy.
 *
 * @throws {TypeError} when a tensor has the reserved name `__metadata__` or an unknown dtype.
 * @throws {RangeError} when a tensor's data is not as long as its dtype and shape say.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeSafetensors, readSafetensors } from "@troupe/troupe/kernels";
 *
 * const file = await Deno.makeTempFile();
 * const bias = { dtype: "F32", shape: [2], data: Float32Array.of(1, 2) } as const;
 * await Deno.writeFile(file, encodeSafetensors(new Map([["bias", bias]]), { step: "40" }));
 * const { tensors, metadata } = await readSafetensors(file);
 * assert.deepEqual(new Float32Array(tensors.get("bias")!.data.buffer), bias.data);
 * assert.equal(metadata.step, "40");
 * await Deno.remove(file);
 * ```
 */
export function encodeSafetensors(
  tensors: ReadonlyMap<string, SafetensorsTensor>,
  metadata: SafetensorsMetadata = {},
): Uint8Array<ArrayBuffer> {
  const { header, names, fileBytes } = layoutSafetensors(tensors, metadata);
  const file = new Uint8Array(fileBytes);
  file.set(header);
  let offset = header.length;
  for (const name of names) {
    const { dtype, shape, data } = tensors.get(name)!;
    const expected = bytesToWrite(name, dtype, shape);
    if (data.byteLength !== expected) {
      throw new RangeError(
        `Cannot write tensor ${show(name)}: ${describe(dtype, shape)} must be ${expected} bytes, ` +
          `received ${data.byteLength}`,
      );
    }
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
    offset += expected;
  }
  return file;
}

function bytesToWrite(name: string, dtype: SafetensorsDType, shape: readonly number[]): number {
  const where = `Cannot write tensor ${show(name)}`;
  if (name === METADATA_KEY) throw new TypeError(`${where}: the name is reserved for metadata`);
  if (!isDType(dtype)) throw new TypeError(`${where}: dtype ${show(dtype)} is not known`);
  if (!isSizes(shape)) {
    throw new RangeError(
      `${where}: its shape must be a list of whole numbers from 0, received ${show(shape)}`,
    );
  }
  return tensorBytes(dtype, shape);
}
