/**
 * Token ids in a file that may be larger than memory: read row by row, and checked as they are read.
 *
 * @module
 */

import { knowFile, type KnownFile, openRanges, type ReadableDisk } from "../files/known_file.ts";
import {
  checkTokens,
  decodeTokens,
  decodeWideTokens,
  type TokenBytes,
  tokenBytesOf,
  tokenCount,
  type Tokens,
} from "./tokens.ts";

/** A file of token ids as it was when it was looked at. */
export interface KnownTokens extends KnownFile {
  /** The largest id, and the first position that has it; undefined where there is none. */
  readonly largest?: { readonly id: number; readonly position: number } | undefined;
}

/** Token ids in a file; none of them is in memory. */
export interface TokenFile {
  /** The largest of the file, where that is known. */
  readonly largest?: KnownTokens["largest"];
  /** How many there are. */
  readonly length: number;
  /** Those from number `start` on. */
  from(start: number): TokenFile;
  /** Opens it for reading. */
  open(): TokenReader;
}

/** Reads token ids. */
export interface TokenReader extends Disposable {
  /**
   * `count` ids from number `start` on, each below the vocabulary's size.
   *
   * @throws {RangeError} with the first that is not, and its position.
   * @throws {Error} when the file cannot be read, or is no longer what it was.
   */
  read(start: number, count: number, vocabularySize: number): Tokens;
}

/**
 * Looks at all ids of a file, however large it is.
 *
 * @throws {RangeError} when it does not hold a whole number of ids.
 * @throws {TypeError} when it is no regular file, or changes meanwhile.
 * @throws {Deno.errors.NotFound} when there is no such file.
 */
export async function knowTokens(path: string): Promise<KnownTokens> {
  const width = tokenBytesOf(path);
  let id = -1, position = -1, seen = 0;
  const known = await knowFile(path, (piece) => {
    const ids = idsOf(piece.subarray(0, piece.length - piece.length % width), path);
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

/** Whether numbers in memory have the order of bytes that they have in a file. */
const IS_LITTLE = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

/** The ids of bytes, which stay theirs where that is possible. */
function idsOf(bytes: Uint8Array<ArrayBuffer>, path: string): Uint16Array | Uint32Array {
  const width = tokenBytesOf(path), { buffer, byteOffset, length } = bytes;
  if (!IS_LITTLE) return width === 2 ? decodeTokens(bytes, path) : decodeWideTokens(bytes, path);
  return new (width === 2 ? Uint16Array : Uint32Array)(buffer, byteOffset, length / width);
}

/**
 * Opens a file of token ids, little-endian unsigned integers: of 32 bits where its name ends in
 * `.u32`, else of 16. It may be larger than memory.
 *
 * @param file its path, or what is known of it.
 * @param disk where it is read.
 * @throws {RangeError} when it does not hold a whole number of ids.
 * @throws {TypeError} when it is no regular file.
 * @throws {Deno.errors.NotFound} when there is no such file.
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
  const width = tokenBytesOf(known.path);
  return rangeOf({ known, width, disk }, 0, tokenCount(known.bytes, known.path, width));
}

/** A file, how its ids are written, and where it is read. */
interface Source {
  readonly known: KnownTokens;
  readonly width: TokenBytes;
  readonly disk: ReadableDisk | undefined;
}

function rangeOf(source: Source, first: number, length: number): TokenFile {
  return {
    length,
    largest: source.known.largest,
    from: (start) => rangeOf(source, first + start, Math.max(0, length - start)),
    open: () => openReader(source, first),
  };
}

function openReader({ known, width, disk }: Source, first: number): TokenReader {
  const ranges = openRanges(known, disk);
  return {
    read(start, count, vocabularySize) {
      const at = first + start, tokens = idsOf(ranges.read(at * width, count * width), known.path);
      ranges.assertSame();
      checkTokens(tokens, vocabularySize, at);
      return tokens;
    },
    [Symbol.dispose]: () => ranges[Symbol.dispose](),
  };
}

/** A reader of tokens that are in memory, where they were checked. */
export const readerOf = (tokens: Tokens): TokenReader => ({
  read: (start, count) => tokens.subarray(start, start + count),
  [Symbol.dispose]: () => {},
});
