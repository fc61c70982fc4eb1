/**
 * Token ids as the data layer sees them: read from a file, checked against a vocabulary.
 *
 * @module
 */

import { checkInputFile } from "../files/input_file.ts";

/** Bytes of a file of tokens that is read whole: a thousand million of them. */
export const TOKENS_BYTES_MAX = 2 ** 31;

/** Token ids of a text, in the narrowest array that holds them. */
export type Tokens = Uint8Array | Uint16Array | Uint32Array | Int32Array;

/** Bytes of a token id in a file. */
export type TokenBytes = 2 | 4;

/** Bytes of a token id in a file of that name: 4 where it ends in `.u32`, else 2. */
export const tokenBytesOf = (path: string): TokenBytes => path.endsWith(".u32") ? 4 : 2;

/**
 * Reads token ids stored as little-endian 16-bit unsigned integers, all of them into memory; a file
 * that is larger is opened by `openTokenFile`.
 *
 * @throws {RangeError} when the file does not hold a whole number of them.
 * @throws {TypeError} when it is no regular file, or too large.
 * @throws {Deno.errors.NotFound} when there is no such file.
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
 * How many token ids a file holds.
 *
 * @param path for messages.
 * @throws {RangeError} when its bytes are not a whole number of them.
 */
export function tokenCount(bytes: number, path: string, width: TokenBytes = 2): number {
  if (bytes % width === 0) return bytes / width;
  throw new RangeError(
    `Cannot read tokens from ${path}: its size must be ${
      width === 2 ? "even" : "a multiple of 4"
    } (${8 * width}-bit tokens), received ${bytes} bytes`,
  );
}

/**
 * Decodes what a file of tokens holds.
 *
 * @param path for messages.
 * @throws {RangeError} when the bytes are not a whole number of tokens.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { decodeTokens } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(decodeTokens(Uint8Array.of(0x34, 0x12), "a.bin"), Uint16Array.of(0x1234));
 * ```
 */
export function decodeTokens(bytes: Uint8Array, path: string): Uint16Array<ArrayBuffer> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tokens = new Uint16Array(tokenCount(bytes.length, path));
  for (let i = 0; i < tokens.length; i++) tokens[i] = view.getUint16(2 * i, true);
  return tokens;
}

/** The same of ids of 32 bits. */
export function decodeWideTokens(bytes: Uint8Array, path: string): Uint32Array<ArrayBuffer> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tokens = new Uint32Array(tokenCount(bytes.length, path, 4));
  for (let i = 0; i < tokens.length; i++) tokens[i] = view.getUint32(4 * i, true);
  return tokens;
}

/**
 * Checks that an embedding of `vocabularySize` rows has a row for every token.
 *
 * @param from the position of the first of them.
 * @throws {RangeError} with the first offending token and its position.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { checkTokens } from "@troupe/troupe/kernels";
 *
 * checkTokens(Uint16Array.of(0, 95), 96);
 * assert.throws(() => checkTokens(Uint16Array.of(0, 96), 96), /96 at position 1/);
 * ```
 */
export function checkTokens(tokens: Tokens, vocabularySize: number, from = 0): void {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (token < 0 || token >= vocabularySize) {
      throw new RangeError(
        `Cannot use these tokens: each must be from 0 to ${vocabularySize - 1} ` +
          `(the vocabulary has ${vocabularySize}), received ${token} at position ${from + i}`,
      );
    }
  }
}
