/**
 * Token ids as the data layer sees them: read from a file, checked against a vocabulary.
 *
 * @module
 */

/** Token ids of a text, in the narrowest array that holds them. */
export type Tokens = Uint8Array | Uint16Array | Int32Array;

/**
 * Reads token ids stored as little-endian 16-bit unsigned integers (`--tokens FILE`).
 *
 * @throws {RangeError} when the file does not hold a whole number of them.
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
  const bytes = await Deno.readFile(path);
  if (bytes.length % 2 !== 0) {
    throw new RangeError(
      `Cannot read tokens from ${path}: its size must be even (16-bit tokens), ` +
        `received ${bytes.length} bytes`,
    );
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Uint16Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true));
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
