/**
 * The header of a safetensors file that somebody else may have written.
 *
 * A file is untrusted input: its header decides how much memory is allocated and which bytes become
 * weights. Whatever the format does not allow (gaps, overlaps, sizes that disagree) is refused here,
 * before a single tensor is read.
 *
 * @module
 */

import { repeatedKey } from "../repeated_key.ts";
import {
  describe,
  isDType,
  isSizes,
  METADATA_KEY,
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsInfo,
  type SafetensorsMetadata,
  show,
  tensorBytes,
} from "./format.ts";

/** An open file that tensors are read from; that of Deno is one. */
export interface SafetensorsFile extends Disposable, Pick<Deno.FsFile, "read" | "seek"> {
  /** Its size in bytes. */
  stat(): Promise<Pick<Deno.FileInfo, "size">>;
}

/** The reference implementation's own limit; a longer header is a corrupt or hostile file. */
const MAX_HEADER_BYTES = 100_000_000;

/** As in the reference implementation, only the end of a header may have white space. */
const OPENING_BRACE = 0x7b;

/** The most tensors of a file, a hundred times those of the largest models. */
const TENSORS_MAX = 100_000;

/** One checked entry of a header; offsets count from the end of the header. */
export interface Entry extends SafetensorsInfo {
  /** The tensor's name. */
  readonly name: string;
  /** Where its bytes begin, from where tensors begin. */
  readonly begin: number;
  /** Where they end. */
  readonly end: number;
}

/** A checked header. */
export interface Header {
  /** Where the tensors begin in the file. */
  readonly dataStart: number;
  /** In the order of their bytes, which they tile. */
  readonly entries: readonly Entry[];
  /** What the file says beside them. */
  readonly metadata: SafetensorsMetadata;
}

/**
 * Reads and checks a header.
 *
 * @param path for messages.
 * @throws {SyntaxError} when the header is not what the format allows.
 * @throws {RangeError} when sizes or offsets disagree with each other or with the file.
 */
export async function readHeader(file: SafetensorsFile, path: string): Promise<Header> {
  const fileBytes = (await file.stat()).size;
  const prefix = new Uint8Array(8);
  if (!await readFull(file, prefix)) {
    throw new SyntaxError(
      `Cannot read ${path}: a safetensors file must start with an 8-byte header length, ` +
        `received ${fileBytes} bytes in all`,
    );
  }
  // As a double: lengths near 2^64 lose digits, but stay far beyond every limit.
  const headerBytes = Number(new DataView(prefix.buffer).getBigUint64(0, true));
  const limit = Math.min(fileBytes - 8, MAX_HEADER_BYTES);
  if (headerBytes > limit) {
    throw new RangeError(
      `Cannot read ${path}: the header must be at most ${limit} bytes, ` +
        `received a header length of ${headerBytes}`,
    );
  }
  const json = new Uint8Array(headerBytes);
  if (!await readFull(file, json)) {
    throw new RangeError(`Cannot read ${path}: the header must be ${headerBytes} bytes, was cut`);
  }
  return { dataStart: 8 + headerBytes, ...parseHeader(json, fileBytes - 8 - headerBytes, path) };
}

function parseHeader(json: Uint8Array, dataBytes: number, path: string) {
  let header: unknown, text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(json);
    header = JSON.parse(text);
  } catch (cause) {
    const start = show(new TextDecoder().decode(json.subarray(0, 40)));
    throw new SyntaxError(`Cannot read ${path}: the header must be JSON, received ${start}`, {
      cause,
    });
  }
  if (!isRecord(header)) {
    throw new SyntaxError(
      `Cannot read ${path}: the header must be a JSON object, received ${show(header)}`,
    );
  }
  if (json[0] !== OPENING_BRACE) {
    throw new SyntaxError(
      `Cannot read ${path}: the header must begin with {, received ${show(text.slice(0, 40))}`,
    );
  }
  const { [METADATA_KEY]: metadata = {}, ...tensors } = header;
  const count = Object.keys(tensors).length;
  if (count > TENSORS_MAX) {
    throw new RangeError(
      `Cannot read ${path}: it must have at most ${TENSORS_MAX} tensors, received ${count}`,
    );
  }
  // JSON lets the last of equal names win: who reads the file otherwise would read another model.
  const twice = repeatedKey(text);
  if (twice !== undefined) {
    throw new SyntaxError(
      `Cannot read ${path}: the names of its header must be unique, received ${show(twice)} twice`,
    );
  }
  if (!isRecord(metadata) || !Object.values(metadata).every((v) => typeof v === "string")) {
    throw new SyntaxError(
      `Cannot read ${path}: ${METADATA_KEY} must map names to strings, received ${show(metadata)}`,
    );
  }
  const entries = Object.entries(tensors).map(([name, entry]) => parseEntry(name, entry, path));
  checkCoverage(entries, dataBytes, path);
  return { entries, metadata: metadata as SafetensorsMetadata };
}

function parseEntry(name: string, entry: unknown, path: string): Entry {
  const where = `Cannot read tensor ${show(name)} of ${path}`;
  if (!isRecord(entry)) {
    throw new SyntaxError(`${where}: its entry must be an object, received ${show(entry)}`);
  }
  const { dtype, shape, data_offsets: offsets } = entry;
  if (!isDType(dtype)) {
    const known = Object.keys(SAFETENSORS_DTYPE_BYTES).join(", ");
    throw new SyntaxError(`${where}: its dtype must be one of ${known}, received ${show(dtype)}`);
  }
  if (!isSizes(shape)) {
    throw new SyntaxError(
      `${where}: its shape must be a list of whole numbers from 0, received ${show(shape)}`,
    );
  }
  if (!isSizes(offsets) || offsets.length !== 2) {
    throw new SyntaxError(
      `${where}: its data_offsets must be two whole numbers from 0, received ${show(offsets)}`,
    );
  }
  const [begin, end] = offsets as [number, number];
  const expected = tensorBytes(dtype, shape);
  if (end - begin !== expected) {
    throw new RangeError(
      `${where}: ${describe(dtype, shape)} must be ${expected} bytes, ` +
        `received data_offsets ${show(offsets)} of ${end - begin} bytes`,
    );
  }
  return { name, dtype, shape, begin, end };
}

/** The tensors must tile the data: each begins where the one before it ends. */
function checkCoverage(entries: Entry[], dataBytes: number, path: string): void {
  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let offset = 0;
  for (const { name, begin, end } of entries) {
    if (begin !== offset) {
      const problem = begin < offset ? "overlaps the tensor before it" : "leaves a hole";
      throw new RangeError(
        `Cannot read tensor ${show(name)} of ${path}: it must begin at offset ${offset}, ` +
          `received ${begin}, which ${problem}`,
      );
    }
    if (end > dataBytes) {
      throw new RangeError(
        `Cannot read tensor ${
          show(name)
        } of ${path}: the file must hold ${end} bytes of tensors, ` +
          `received ${dataBytes}, so it is truncated`,
      );
    }
    offset = end;
  }
  if (offset !== dataBytes) {
    throw new RangeError(
      `Cannot read ${path}: the file must end after ${offset} bytes of tensors, ` +
        `received ${dataBytes}`,
    );
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Fills an array; false where the file ends before. */
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
