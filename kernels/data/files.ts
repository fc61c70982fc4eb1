/**
 * Names that an object of a JSON text has twice, which `JSON.parse` does not tell.
 *
 * @module
 */

import { createHash } from "node:crypto";

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

/** A file as it was when it was looked at. */
export interface KnownFile {
  /** Where it lies. */
  readonly path: string;
  /** Its size. */
  readonly bytes: number;
  /** When it was changed last, in milliseconds since the epoch; 0 where the system does not say. */
  readonly modifiedMs: number;
  /** SHA-256 of its bytes, in hexadecimal. */
  readonly sha256: string;
}

/** What is read of a disk. */
export interface ReadableDisk {
  /** Opens a file for reading. */
  openSync(path: string): Pick<Deno.FsFile, "readSync" | "seekSync" | "statSync" | "close">;
}

/** Bytes of a file that are in memory at once while its hash is taken. */
const PIECE_BYTES = 2 ** 22;

/**
 * Looks at a file, however large it is.
 *
 * @param look told its pieces one after the other; all but the last are of as many bytes, a multiple
 * of 4.
 * @throws {TypeError} when it is no regular file, or changes meanwhile.
 * @throws {Deno.errors.NotFound} when there is no such file.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { knowFile, openRanges } from "@troupe/troupe/kernels";
 *
 * const path = await Deno.makeTempFile();
 * await Deno.writeFile(path, Uint8Array.of(1, 2, 3, 4));
 * const file = await knowFile(path);
 * assert.match(file.sha256, /^9f64a747e1b97f13/);
 * {
 *   using ranges = openRanges(file);
 *   assert.deepEqual(ranges.read(1, 2), Uint8Array.of(2, 3));
 * }
 * await Deno.remove(path);
 * ```
 */
export async function knowFile(
  path: string,
  look: (piece: Uint8Array<ArrayBuffer>) => void = () => {},
): Promise<KnownFile> {
  checkInputFile(path);
  using file = await Deno.open(path);
  const before = stateOf(path, await file.stat());
  const hash = createHash("sha256"), piece = new Uint8Array(PIECE_BYTES);
  for (let at = 0, read: number | null = 0; read !== null;) {
    read = await file.read(piece.subarray(at));
    at += read ?? 0;
    if (at < piece.length && read !== null) continue;
    const whole = piece.subarray(0, at);
    hash.update(whole);
    look(whole);
    at = 0;
  }
  const known = { ...before, sha256: hash.digest("hex") };
  assertSame(known, await file.stat(), "it was opened");
  return known;
}

/** Reads ranges of a file. */
export interface Ranges extends Disposable {
  /**
   * Bytes of the file.
   *
   * @throws {Error} when they cannot be read, or the file is shorter than it was.
   */
  read(offset: number, length: number): Uint8Array<ArrayBuffer>;
  /**
   * Makes sure that what was read is of the file that was looked at.
   *
   * @throws {TypeError} when it has been changed since.
   */
  assertSame(): void;
}

/**
 * Opens a file for reading by ranges. What is open must be disposed of.
 *
 * @throws {Error} when it cannot be opened.
 */
export function openRanges(known: KnownFile, disk: ReadableDisk = Deno): Ranges {
  const { path } = known, file = told(path, () => disk.openSync(path));
  const same = () => assertSame(known, told(path, () => file.statSync()), "the run began");
  return {
    read(offset, length) {
      const bytes = new Uint8Array(length);
      told(path, () => file.seekSync(offset, Deno.SeekMode.Start));
      for (let at = 0; at < length;) {
        const read = told(path, () => file.readSync(bytes.subarray(at)));
        if (read === null) {
          same();
          throw new RangeError(
            `Cannot read ${path}: it must have ${offset + length} bytes, received ${offset + at}`,
          );
        }
        at += read;
      }
      return bytes;
    },
    assertSame: same,
    [Symbol.dispose]: () => file.close(),
  };
}

const stateOf = (path: string, { size, mtime }: Deno.FileInfo): Omit<KnownFile, "sha256"> => ({
  path,
  bytes: size,
  modifiedMs: mtime?.getTime() ?? 0,
});

function assertSame(known: KnownFile, info: Deno.FileInfo, since: string): void {
  const { bytes, modifiedMs } = stateOf(known.path, info);
  if (bytes === known.bytes && modifiedMs === known.modifiedMs) return;
  const found = bytes === known.bytes
    ? `one that was written at ${new Date(modifiedMs).toISOString()}`
    : `${bytes} bytes in place of ${known.bytes}`;
  throw new TypeError(
    `Cannot read ${known.path}: it must stay as it was when ${since}, received ${found}`,
  );
}

/** Does something with a file; what the system says of it is told with the path. */
function told<T>(path: string, use: () => T): T {
  try {
    return use();
  } catch (cause) {
    throw new Error(`Cannot read ${path}: ${(cause as Error).message}`, { cause });
  }
}

/** A string, or what begins or ends an object or a list, or comes after a name. */
const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g;

/**
 * The first name that an object has twice, at any depth; undefined where there is none.
 *
 * @param text that `JSON.parse` has accepted.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(repeatedKey('{"a": {"b": 1}, "b": ["a", "a"]}'), undefined);
 * assert.equal(repeatedKey('{"a": {"b": 1, "\\u0062": 2}}'), "b");
 * ```
 */
export function repeatedKey(text: string): string | undefined {
  const open: Set<string>[] = [];
  let last = "";
  for (const [token] of text.matchAll(TOKEN)) {
    if (token === "{" || token === "[") open.push(new Set());
    else if (token === "}" || token === "]") open.pop();
    else if (token === ":") {
      const name = JSON.parse(last) as string, names = open.at(-1)!;
      if (names.has(name)) return name;
      names.add(name);
    } else last = token;
  }
}
