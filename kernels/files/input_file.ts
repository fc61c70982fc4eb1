/**
 * Files that a user names: looked at before they are opened, as a pipe or a device may have no end.
 *
 * @module
 */

/** What a path names that is no regular file, by the name of {@linkcode Deno.FileInfo}'s field. */
const OTHERS = {
  isDirectory: "a folder",
  isFifo: "a pipe",
  isSocket: "a socket",
  isCharDevice: "a device",
  isBlockDevice: "a device",
} as const;

/**
 * What keeps a path from being read as a file; undefined for one that can be.
 *
 * @param bytesMax the most bytes that it may have.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { inputFileProblem } from "@troupe/troupe/kernels";
 *
 * assert.equal(inputFileProblem("nowhere", 10), "no such file");
 * assert.equal(inputFileProblem(".", 10), "a folder");
 * ```
 */
export function inputFileProblem(path: string | URL, bytesMax = Infinity): string | undefined {
  try {
    const info = Deno.statSync(path);
    const other = Object.entries(OTHERS).find(([field]) => info[field as keyof typeof OTHERS]);
    if (!info.isFile) return other?.[1] ?? "no regular file";
    if (info.size > bytesMax) return `${info.size} bytes, more than ${bytesMax}`;
  } catch (error) {
    return error instanceof Deno.errors.NotFound ? "no such file" : (error as Error).message;
  }
}

/**
 * Refuses what cannot be read as a file.
 *
 * @throws {TypeError} saying what the path names.
 * @throws {Deno.errors.NotFound} when there is no such file.
 */
export function checkInputFile(path: string | URL, bytesMax?: number): void {
  const problem = inputFileProblem(path, bytesMax);
  if (problem === undefined) return;
  if (problem === "no such file") throw new Deno.errors.NotFound(`No such file: ${path}`);
  throw new TypeError(`Cannot read ${path}: it must be a regular file, received ${problem}`);
}

/** Bytes of a text: V8's strings are not longer. */
export const TEXT_BYTES_MAX = 500_000_000;

/** Bytes of a file of action lists: ten million actions. */
export const CSV_BYTES_MAX = 2 ** 27;

/**
 * Decodes a text in UTF-8.
 *
 * @param path for messages.
 * @throws {TypeError} when the bytes are no text: not UTF-8, or with a NUL.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { decodeText } from "@troupe/troupe/kernels";
 *
 * assert.equal(decodeText(Uint8Array.of(0x6e, 0xc3, 0xa9), "a.txt"), "né");
 * assert.throws(() => decodeText(Uint8Array.of(0x6e, 0xc3), "a.txt"), TypeError);
 * ```
 */
export function decodeText(bytes: Uint8Array, path: string): string {
  const nul = bytes.indexOf(0);
  if (nul >= 0) {
    throw new TypeError(
      `Cannot read ${path}: it must be a text in UTF-8, received a zero at byte ${nul}`,
    );
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new TypeError(
      `Cannot read ${path}: it must be a text in UTF-8, received other bytes`,
      { cause },
    );
  }
}
