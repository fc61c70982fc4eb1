/**
 * Token ids in a file that may be larger than memory: read and checked row by row.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";
import {
  checkInputFile,
  knowFile,
  type KnownFile,
  openRanges,
  type Ranges,
  type ReadableDisk,
} from "./files.ts";

/** Largest size in bytes of a file of tokens that is read whole: about 10⁹ tokens. */
export const TOKENS_BYTES_MAX = 2 ** 31;

/** Token ids of a text, in the narrowest array type that holds them. */
export type Tokens = Uint8Array | Uint16Array | Uint32Array | Int32Array;

/** Bytes of a token id in a file. */
type TokenBytes = 2 | 4;

/** Returns the bytes of a token id in a file by its name: 4 if it ends in `.u32`, otherwise 2. */
export const tokenBytesOf = (path: string): TokenBytes => path.endsWith(".u32") ? 4 : 2;

/**
 * Reads a file of token ids, little-endian 16-bit unsigned integers, into memory. Use `openTokenFile`
 * for a larger file.
 *
 * @throws {RangeError} when the size is not a whole number of ids.
 * @throws {TypeError} when it is not a regular file, or too large.
 * @throws {Deno.errors.NotFound} when there is no file.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readTokens } from "@troupe/troupe/kernels";
 *
 * const file = await Deno.makeTempFile();
 * await Deno.writeFile(file, Uint8Array.of(0x01, 0x00, 0x34, 0x12));
 * assert.deepEqual(await readTokens(file), Uint16Array.of(1, 0x1234));
 * await Deno.remove(file);
 * ```
 */
export async function readTokens(path: string): Promise<Uint16Array<ArrayBuffer>> {
  checkInputFile(path, TOKENS_BYTES_MAX);
  return decodeTokens(await Deno.readFile(path), path);
}

/**
 * Returns the number of token ids in a file.
 *
 * @param path for messages.
 * @throws {RangeError} when its bytes are not a whole number of them.
 */
function tokenCount(bytes: number, path: string, width: TokenBytes = 2): number {
  const size = `${width === 2 ? "even" : "a multiple of 4"} (${8 * width}-bit tokens)`;
  const isWhole = bytes % width === 0;
  assertInput(isWhole, `read tokens from ${path}`, `its size must be ${size}`, `${bytes} bytes`);
  return bytes / width;
}

/**
 * Decodes the bytes of a file of 16-bit token ids.
 *
 * @param path for messages.
 * @throws {RangeError} when the bytes are not a whole number of tokens.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(decodeTokens(Uint8Array.of(0x34, 0x12), "a.bin"), Uint16Array.of(0x1234));
 * ```
 */
export function decodeTokens(bytes: Uint8Array, path: string): Uint16Array<ArrayBuffer> {
  tokenCount(bytes.length, path);
  return new Uint16Array(new Uint8Array(bytes).buffer);
}

/**
 * Decodes the bytes of a file of 32-bit lengths.
 *
 * @throws {RangeError} when the bytes are not a whole number of them.
 */
export function decodeLengths(bytes: Uint8Array, path: string): Uint32Array<ArrayBuffer> {
  tokenCount(bytes.length, path, 4);
  return new Uint32Array(new Uint8Array(bytes).buffer);
}

/**
 * Checks that an embedding of `vocabularySize` rows has a row for every token.
 *
 * @param from position of the first of them.
 * @throws {RangeError} with the first invalid token and its position.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * checkTokens(Uint16Array.of(0, 95), 96);
 * assert.throws(() => checkTokens(Uint16Array.of(0, 96), 96), /96 at position 1/);
 * ```
 */
export function checkTokens(tokens: Tokens, vocabularySize: number, from = 0): void {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (token >= 0 && token < vocabularySize) continue;
    const range = `from 0 to ${vocabularySize - 1} (the vocabulary has ${vocabularySize})`;
    throw refusal("use these tokens", `each must be ${range}`, `${token} at position ${from + i}`);
  }
}

/** A file of token ids with its state when it was read. */
export interface KnownTokens extends KnownFile {
  /** The largest id with its first position; undefined if there are no ids. */
  readonly largest?: { readonly id: number; readonly position: number } | undefined;
}

/** Token ids in a file; none of them is in memory. */
export interface TokenFile {
  /** The largest id of the file, if known. */
  readonly largest?: KnownTokens["largest"];
  /** Number of ids. */
  readonly length: number;
  /** Returns the ids from number `start`. */
  from(start: number): TokenFile;
  /** Opens it for reading. */
  open(): TokenReader;
}

/** Reads token ids. */
export interface TokenReader extends Disposable {
  /**
   * Reads `count` ids from number `start`, and checks them against the vocabulary's size.
   *
   * @throws {RangeError} with the first invalid id and its position.
   * @throws {Error} when the file cannot be read, or has changed.
   */
  read(start: number, count: number, vocabularySize: number): Tokens;
}

/**
 * Reads and hashes a file of ids of any size, and finds the largest id.
 *
 * @throws {RangeError} when the size is not a whole number of ids.
 * @throws {TypeError} when it is not a regular file, or changes during the read.
 * @throws {Deno.errors.NotFound} when there is no file.
 */
export async function knowTokens(path: string): Promise<KnownTokens> {
  const width = tokenBytesOf(path);
  let id = -1, position = -1, seen = 0;
  const known = await knowFile(path, (piece) => {
    const ids = idsOf(piece.subarray(0, piece.length - piece.length % width), width);
    for (let i = 0; i < ids.length; i++) {
      if (ids[i]! <= id) continue;
      id = ids[i]!;
      position = seen + i;
    }
    seen += ids.length;
  });
  tokenCount(known.bytes, path, width);
  return { ...known, largest: position < 0 ? undefined : { id, position } };
}

/** Returns aligned bytes as ids, without a copy: Deno runs on little-endian machines only. */
const idsOf = ({ buffer, byteOffset, length }: Uint8Array<ArrayBuffer>, width: TokenBytes) =>
  new (width === 2 ? Uint16Array : Uint32Array)(buffer, byteOffset, length / width);

/**
 * Opens a file of token ids, little-endian unsigned integers: of 32 bits if its name ends in `.u32`,
 * otherwise of 16. It may be larger than memory.
 *
 * @param file its path, or its known state.
 * @param disk access to the file.
 * @throws {RangeError} when the size is not a whole number of ids.
 * @throws {TypeError} when it is not a regular file.
 * @throws {Deno.errors.NotFound} when there is no file.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openTokenFile, tokenBatches } from "@troupe/troupe/kernels";
 *
 * const path = await Deno.makeTempFile();
 * await Deno.writeFile(path, new Uint8Array(Uint16Array.of(10, 11, 12, 13, 14).buffer));
 * const tokens = await openTokenFile(path);
 * const cut = { seq: 2, vocabularySize: 16, microBatch: 2, microBatches: 1, steps: 1 };
 * const [batch] = tokenBatches({ tokens, ...cut });
 * assert.deepEqual(batch!.targets, Int32Array.of(11, 12, 13, 14));
 * await Deno.remove(path);
 * ```
 */
export async function openTokenFile(
  file: string | KnownTokens,
  disk?: ReadableDisk,
): Promise<TokenFile> {
  const known = typeof file === "string" ? await knowTokens(file) : file;
  const { path, bytes, largest } = known, width = tokenBytesOf(path);
  const rangeOf = (first: number, length: number): TokenFile => ({
    length,
    largest,
    from: (start) => rangeOf(first + start, Math.max(0, length - start)),
    open: () => openReader(openRanges(known, disk), width, first),
  });
  return rangeOf(0, tokenCount(bytes, path, width));
}

function openReader(ranges: Ranges, width: TokenBytes, first: number): TokenReader {
  return {
    read(start, count, vocabularySize) {
      const at = first + start, tokens = idsOf(ranges.read(at * width, count * width), width);
      ranges.assertSame();
      checkTokens(tokens, vocabularySize, at);
      return tokens;
    },
    [Symbol.dispose]: () => ranges[Symbol.dispose](),
  };
}

/** Returns a reader of tokens in memory, which were already checked. */
export const readerOf = (tokens: Tokens): TokenReader => ({
  read: (start, count) => tokens.subarray(start, start + count),
  [Symbol.dispose]: () => {},
});
