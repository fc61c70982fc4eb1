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

/** Token ids in a file; none of them is in memory. */
export interface TokenFile {
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
  file: string | KnownFile,
  disk?: ReadableDisk,
): Promise<TokenFile> {
  const known = typeof file === "string" ? await knowFile(file) : file;
  const width = tokenBytesOf(known.path);
  return rangeOf({ known, width, disk }, 0, tokenCount(known.bytes, known.path, width));
}

/** A file, how its ids are written, and where it is read. */
interface Source {
  readonly known: KnownFile;
  readonly width: TokenBytes;
  readonly disk: ReadableDisk | undefined;
}

function rangeOf(source: Source, first: number, length: number): TokenFile {
  return {
    length,
    from: (start) => rangeOf(source, first + start, Math.max(0, length - start)),
    open: () => openReader(source, first),
  };
}

function openReader({ known, width, disk }: Source, first: number): TokenReader {
  const ranges = openRanges(known, disk), decode = width === 2 ? decodeTokens : decodeWideTokens;
  return {
    read(start, count, vocabularySize) {
      const at = first + start, tokens = decode(ranges.read(at * width, count * width), known.path);
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
