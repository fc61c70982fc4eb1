/**
 * Token ids as the data layer sees them: read from a file, checked against a vocabulary.
 *
 * @module
 */

import { checkInputFile } from "../files/input_file.ts";

/** Bytes of a file of tokens: a thousand million of them. */
export const TOKENS_BYTES_MAX = 2 ** 31;

/** Token ids of a text, in the narrowest array that holds them. */
export type Tokens = Uint8Array | Uint16Array | Int32Array;

/**
 * Reads token ids stored as little-endian 16-bit unsigned integers (`--tokens FILE`).
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
  if (bytes.length % 2 !== 0) {
    throw new RangeError(
      `Cannot read tokens from ${path}: its size must be even (16-bit tokens), ` +
        `received ${bytes.length} bytes`,
    );
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tokens = new Uint16Array(bytes.length / 2);
  for (let i = 0; i < tokens.length; i++) tokens[i] = view.getUint16(2 * i, true);
  return tokens;
}

/**
 * Checks that an embedding of `vocabularySize` rows has a row for every token.
 *
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
export function checkTokens(tokens: Tokens, vocabularySize: number): void {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (token < 0 || token >= vocabularySize) {
      throw new RangeError(
        `Cannot use these tokens: each must be from 0 to ${vocabularySize - 1} ` +
          `(the vocabulary has ${vocabularySize}), received ${token} at position ${i}`,
      );
    }
  }
}
