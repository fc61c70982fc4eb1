/**
 * Reads and writes safetensors files.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";
import { checkInputFile, repeatedKey } from "./files.ts";

/** Bytes of one element of each dtype that a safetensors file may hold. */
export const SAFETENSORS_DTYPE_BYTES = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  I64: 8,
  U64: 8,
  F64: 8,
} as const;

/** Element types of a safetensors file, as in its header. */
export type SafetensorsDType = keyof typeof SAFETENSORS_DTYPE_BYTES;

/** Type and shape of a tensor, as in a header. */
export interface SafetensorsInfo {
  /** The type of its elements. */
  readonly dtype: SafetensorsDType;
  /** Its shape; empty for a scalar. */
  readonly shape: readonly number[];
}

/** Text metadata of a file. */
export type SafetensorsMetadata = Readonly<Record<string, string>>;

/** Largest number of dimensions, as in ONNX and NumPy. */
const RANK_MAX = 64;

/** Name of the metadata in a header. */
const METADATA_KEY = "__metadata__";

/** Bytes of a tensor. */
function tensorBytes(dtype: SafetensorsDType, shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, SAFETENSORS_DTYPE_BYTES[dtype]);
}

/** Formats the required size of a tensor for messages. */
const bytesOf = (dtype: SafetensorsDType, shape: readonly number[]): string =>
  `${dtype} of shape [${shape.join(", ")}] must be ${tensorBytes(dtype, shape)} bytes`;

/** Returns whether a value is an element type of the format. */
function isDType(value: unknown): value is SafetensorsDType {
  return typeof value === "string" && Object.hasOwn(SAFETENSORS_DTYPE_BYTES, value);
}

const DTYPE_MUST = `its dtype must be one of ${Object.keys(SAFETENSORS_DTYPE_BYTES).join(", ")}`;

const SIZES_MUST = "its shape must be a list of whole numbers from 0";

/** Returns whether a value is a list of whole numbers from 0, as shapes and offsets are. */
function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.length <= RANK_MAX &&
    value.every((size) => Number.isSafeInteger(size) && size >= 0);
}

/** Formats a received value for messages, shortened. */
function show(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length <= 80 ? text : `${text.slice(0, 77)}...`;
}

/** Element types of weights. */
export type FloatDType = "F32" | "F16" | "BF16";

/** Returns whether numbers of a type can be converted to F32 exactly. */
export const isFloatDType = (dtype: SafetensorsDType): dtype is FloatDType =>
  dtype === "F32" || dtype === "F16" || dtype === "BF16";

/**
 * Converts numbers to F32 exactly.
 *
 * @param bytes little-endian, aligned to the size of a number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(decodeFloats("BF16", Uint8Array.of(0xc0, 0x3f)), Float32Array.of(1.5));
 * assert.deepEqual(decodeFloats("F16", Uint8Array.of(0x00, 0x3e)), Float32Array.of(1.5));
 * ```
 */
export function decodeFloats(dtype: FloatDType, bytes: Uint8Array): Float32Array {
  const { buffer, byteOffset } = bytes;
  const count = bytes.byteLength / SAFETENSORS_DTYPE_BYTES[dtype];
  if (dtype === "F32") return new Float32Array(buffer, byteOffset, count);
  if (dtype === "F16") return Float32Array.from(new Float16Array(buffer, byteOffset, count));
  const halves = new Uint16Array(buffer, byteOffset, count), values = new Float32Array(count);
  const words = new Uint32Array(values.buffer);
  for (let i = 0; i < count; i++) words[i] = halves[i]! << 16;
  return values;
}

/**
 * Converts F32 numbers to another type, rounded to nearest, ties to even. Numbers beyond the largest
 * become infinite.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const bytes = encodeFloats("BF16", Float32Array.of(1.5, 3.1415927));
 * assert.deepEqual(decodeFloats("BF16", bytes), Float32Array.of(1.5, 3.140625));
 * ```
 */
export function encodeFloats(dtype: FloatDType, values: Float32Array): Uint8Array {
  const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
    new Uint8Array(buffer, byteOffset, byteLength);
  if (dtype === "F32") return bytesOf(values);
  if (dtype === "F16") return bytesOf(Float16Array.from(values));
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!, isOdd = word >>> 16 & 1;
    // Rounding could turn NaN into infinity.
    halves[i] = Number.isNaN(values[i]) ? 0x7fc0 : (word + 0x7fff + isOdd) >>> 16;
  }
  return bytesOf(halves);
}

/** An open file of tensors, such as Deno's. */
export interface SafetensorsFile extends Disposable, Pick<Deno.FsFile, "read" | "seek"> {
  /** Its size in bytes. */
  stat(): Promise<Pick<Deno.FileInfo, "size">>;
}

/** Limit of the reference implementation; a longer header is corrupt or hostile. */
const MAX_HEADER_BYTES = 100_000_000;

/** A header may end with white space but not start with it, as in the reference implementation. */
const OPENING_BRACE = 0x7b;

/** Largest number of tensors of a file, a hundred times those of the largest models. */
const TENSORS_MAX = 100_000;

/** One checked entry of a header; offsets count from the end of the header. */
export interface Entry extends SafetensorsInfo {
  /** The tensor's name. */
  readonly name: string;
  /** Start of its bytes, from the end of the header. */
  readonly begin: number;
  /** End of its bytes. */
  readonly end: number;
}

/**
 * Reads and checks a header.
 *
 * @param path for messages.
 * @returns `dataStart`, the offset of the tensors in the file; `entries` in the order of their bytes,
 * which cover the data without gaps; the metadata of the file.
 * @throws {SyntaxError} when the header violates the format.
 * @throws {RangeError} when sizes or offsets disagree with each other or with the file.
 */
export async function readHeader(file: SafetensorsFile, path: string) {
  const fileBytes = (await file.stat()).size;
  const prefix = new Uint8Array(8);
  const long = "a safetensors file must start with an 8-byte header length";
  const isLong = await readFull(file, prefix), received = `${fileBytes} bytes in all`;
  assertInput(isLong, `read ${path}`, long, received, SyntaxError);
  // As a double: lengths near 2^64 lose digits, but exceed every limit.
  const headerBytes = Number(new DataView(prefix.buffer).getBigUint64(0, true));
  const limit = Math.min(fileBytes - 8, MAX_HEADER_BYTES);
  const must = `the header must be at most ${limit} bytes`;
  assertInput(headerBytes <= limit, `read ${path}`, must, `a header length of ${headerBytes}`);
  const json = new Uint8Array(headerBytes);
  const isWhole = await readFull(file, json);
  assertInput(isWhole, `read ${path}`, `the header must be ${headerBytes} bytes`, "fewer");
  return { dataStart: 8 + headerBytes, ...parseHeader(json, fileBytes - 8 - headerBytes, path) };
}

function parseHeader(json: Uint8Array, dataBytes: number, path: string) {
  const cannot = `read ${path}`;
  let header: unknown, text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(json);
    header = JSON.parse(text);
  } catch (cause) {
    const start = show(new TextDecoder().decode(json.subarray(0, 40)));
    throw new SyntaxError(`Cannot ${cannot}: the header must be JSON, received ${start}`, {
      cause,
    });
  }
  if (!isRecord(header)) {
    throw refusal(cannot, "the header must be a JSON object", show(header), SyntaxError);
  }
  const begin = "the header must begin with {", start = show(text.slice(0, 40));
  assertInput(json[0] === OPENING_BRACE, cannot, begin, start, SyntaxError);
  const { [METADATA_KEY]: metadata = {}, ...tensors } = header;
  const count = Object.keys(tensors).length;
  assertInput(count <= TENSORS_MAX, cannot, `it must have at most ${TENSORS_MAX} tensors`, count);
  // JSON.parse uses the last of equal names, and other readers may use the first.
  const twice = repeatedKey(text);
  const unique = "the names of its header must be unique";
  assertInput(twice === undefined, cannot, unique, show(twice), SyntaxError);
  const isText = isRecord(metadata) && Object.values(metadata).every((v) => typeof v === "string");
  const must = `${METADATA_KEY} must map names to strings`;
  assertInput(isText, cannot, must, show(metadata), SyntaxError);
  const entries = Object.entries(tensors).map(([name, entry]) => parseEntry(name, entry, path));
  checkCoverage(entries, dataBytes, path);
  return { entries, metadata: metadata as SafetensorsMetadata };
}

function parseEntry(name: string, entry: unknown, path: string): Entry {
  const cannot = `read tensor ${show(name)} of ${path}`;
  assertInput(isRecord(entry), cannot, "its entry must be an object", show(entry), SyntaxError);
  const { dtype, shape, data_offsets: offsets } = entry;
  assertInput(isDType(dtype), cannot, DTYPE_MUST, show(dtype), SyntaxError);
  assertInput(isSizes(shape), cannot, SIZES_MUST, show(shape), SyntaxError);
  const arePlaces = isSizes(offsets) && offsets.length === 2;
  const must = "its data_offsets must be two whole numbers from 0";
  assertInput(arePlaces, cannot, must, show(offsets), SyntaxError);
  const [begin, end] = offsets as [number, number];
  const received = `data_offsets ${show(offsets)} of ${end - begin} bytes`;
  const isWhole = end - begin === tensorBytes(dtype, shape);
  assertInput(isWhole, cannot, bytesOf(dtype, shape), received);
  return { name, dtype, shape, begin, end };
}

/** Checks that the tensors cover the data: each starts at the end of the one before it. */
function checkCoverage(entries: Entry[], dataBytes: number, path: string): void {
  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let offset = 0;
  for (const { name, begin, end } of entries) {
    const cannot = `read tensor ${show(name)} of ${path}`;
    const problem = begin < offset ? "overlaps the tensor before it" : "leaves a hole";
    const must = `it must begin at offset ${offset}`;
    assertInput(begin === offset, cannot, must, `${begin}, which ${problem}`);
    const received = `${dataBytes}, so it is truncated`;
    assertInput(end <= dataBytes, cannot, `the file must hold ${end} bytes of tensors`, received);
    offset = end;
  }
  const must = `the file must end after ${offset} bytes of tensors`;
  assertInput(offset === dataBytes, `read ${path}`, must, dataBytes);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Fills an array from a file; false if the file ends before. */
export async function readFull(
  file: Pick<SafetensorsFile, "read">,
  into: Uint8Array,
): Promise<boolean> {
  let filled = 0;
  while (filled < into.length) {
    const read = await file.read(into.subarray(filled));
    if (read === null) return false;
    filled += read;
  }
  return true;
}

/** A tensor that was read. `data` owns its buffer, unless it was placed. */
export interface LoadedTensor extends SafetensorsInfo {
  /** Its elements as bytes. */
  readonly data: Uint8Array<ArrayBufferLike>;
}

/**
 * Reads a file, each tensor directly into the memory that `place` returns for it: by default a new
 * buffer; `undefined` skips the tensor.
 *
 * @param path of the file, or its bytes, such as a page fetches.
 * @throws {SyntaxError} when the header violates the format.
 * @throws {RangeError} when sizes or offsets disagree with each other or with the file.
 * @throws {TypeError} when the path is not a regular file.
 * @throws {Deno.errors.NotFound} when there is no file.
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
  path: string | Uint8Array,
  place: PlaceTensor = (_name, _info, bytes) => new Uint8Array(bytes),
): Promise<{ tensors: Map<string, LoadedTensor>; metadata: SafetensorsMetadata }> {
  if (typeof path !== "string") {
    return await readOpenSafetensors(openBytes(path), "the bytes", place);
  }
  checkInputFile(path);
  using file = await Deno.open(path);
  return await readOpenSafetensors(file, path, place);
}

/** Returns bytes as an open file. */
export function openBytes(bytes: Uint8Array): SafetensorsFile {
  let at = 0;
  return {
    stat: () => Promise.resolve({ size: bytes.length }),
    seek: (offset) => Promise.resolve(at = Number(offset)),
    read(into) {
      const part = bytes.subarray(at, at + into.length);
      into.set(part);
      at += part.length;
      return Promise.resolve(part.length || null);
    },
    [Symbol.dispose]() {},
  };
}

/** `Deno.SeekMode.Start`, which pages do not have. */
export const FROM_START: Deno.SeekMode = 0;

/** Calls `place`, with the name of the tensor in errors of failed allocations. */
function placed<T>(tensor: string, bytes: number, place: () => T): T {
  try {
    return place();
  } catch (cause) {
    if (!(cause instanceof RangeError) || !/allocation failed|array length/i.test(cause.message)) {
      throw cause;
    }
    const must = `it must fit into memory, received ${bytes} bytes`;
    throw new RangeError(`Cannot read ${tensor}: ${must}`, { cause });
  }
}

/** Returns memory for a tensor, or `undefined` to skip it. */
export type PlaceTensor = (
  name: string,
  info: SafetensorsInfo,
  bytes: number,
) => Uint8Array | undefined;

/**
 * Reads an open file, as {@linkcode readSafetensors} does.
 *
 * @param path for messages.
 * @throws as {@linkcode readSafetensors}.
 */
export async function readOpenSafetensors(
  file: SafetensorsFile,
  path: string,
  place: PlaceTensor,
): Promise<{ tensors: Map<string, LoadedTensor>; metadata: SafetensorsMetadata }> {
  await file.seek(0, FROM_START);
  const { dataStart, entries, metadata } = await readHeader(file, path);
  const tensors = new Map<string, LoadedTensor>();
  for (const { name, dtype, shape, begin, end } of entries) {
    const bytes = end - begin, tensor = `tensor ${show(name)} of ${path}`;
    const data = placed(tensor, bytes, () => place(name, { dtype, shape }, bytes));
    if (data === undefined) continue;
    const size = `its memory must be ${bytes} bytes`;
    assertInput(data.length === bytes, `place ${tensor}`, size, data.length);
    await file.seek(dataStart + begin, FROM_START);
    const isWhole = await readFull(file, data),
      received = "a file that was truncated during the read";
    const must = `tensor ${show(name)} must end at byte ${dataStart + end}`;
    assertInput(isWhole, `read ${path}`, must, received);
    tensors.set(name, { dtype, shape, data });
  }
  return { tensors, metadata };
}

/** A tensor to write: its description and its little-endian elements, row by row. */
export interface SafetensorsTensor extends SafetensorsInfo {
  /** Its elements. */
  readonly data: ArrayBufferView;
}

/**
 * Lays out a file without access to tensor data, so that tensors can be streamed one at a time.
 * Names are sorted by element size, larger first, then by name: every tensor is then aligned to its
 * elements, as in the reference implementation.
 *
 * @returns `header`, the length of the header, its JSON and padding, a multiple of 8 bytes; `names` in
 * the order of the file, where the bytes of each follow; `fileBytes`, the size of the whole file.
 * @throws {TypeError} when a tensor has the reserved name `__metadata__` or an unknown dtype.
 * @throws {RangeError} when a shape is not a list of whole numbers from 0.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
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
) {
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
 * Encodes a whole file in memory.
 *
 * @throws {TypeError} when a tensor has the reserved name `__metadata__` or an unknown dtype.
 * @throws {RangeError} when the length of a tensor's data differs from its dtype and shape.
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
    const cannot = `write tensor ${show(name)}`, must = bytesOf(dtype, shape);
    assertInput(data.byteLength === expected, cannot, must, data.byteLength);
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
    offset += expected;
  }
  return file;
}

function bytesToWrite(name: string, dtype: SafetensorsDType, shape: readonly number[]): number {
  const cannot = `write tensor ${show(name)}`, must = "its name must not be reserved for metadata";
  assertInput(name !== METADATA_KEY, cannot, must, show(name), TypeError);
  assertInput(isDType(dtype), cannot, "its dtype must be known", show(dtype), TypeError);
  assertInput(isSizes(shape), cannot, SIZES_MUST, show(shape));
  return tensorBytes(dtype, shape);
}
