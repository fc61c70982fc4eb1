/**
 * Files from users: checks, hashes, reads of ranges, UTF-8 text, and JSON with repeated names.
 *
 * @module
 */

import { assertInput, nameErrors, refusal } from "../errors.ts";
import { builtin } from "../builtin.ts";

const { createHash } = builtin("node:crypto");

/** Names of files that are not regular, by field of {@linkcode Deno.FileInfo}. */
const OTHERS = {
  isDirectory: "a folder",
  isFifo: "a pipe",
  isSocket: "a socket",
  isCharDevice: "a device",
  isBlockDevice: "a device",
} as const;

/**
 * Returns the reason why a path cannot be read as a file; undefined if it can.
 *
 * @param bytesMax largest number of bytes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(inputFileProblem("nowhere", 10), "no such file");
 * assert.equal(inputFileProblem(".", 10), "a folder");
 * ```
 */
export function inputFileProblem(path: string | URL, bytesMax = Infinity): string | undefined {
  try {
    const info = Deno.statSync(path);
    const other = Object.entries(OTHERS).find(([field]) => info[field as keyof typeof OTHERS]);
    if (!info.isFile) return other?.[1] ?? "another kind of file";
    if (info.size > bytesMax) return `${info.size} bytes, more than ${bytesMax}`;
  } catch (error) {
    return error instanceof Deno.errors.NotFound ? "no such file" : (error as Error).message;
  }
}

/**
 * Throws if a path cannot be read as a file.
 *
 * @throws {TypeError} with the kind of the path.
 * @throws {Deno.errors.NotFound} when there is no file.
 */
export function checkInputFile(path: string | URL, bytesMax?: number): void {
  const problem = inputFileProblem(path, bytesMax);
  if (problem === undefined) return;
  const error = refusal(`read ${path}`, "it must be a regular file", problem, TypeError);
  throw problem === "no such file" ? new Deno.errors.NotFound(error.message) : error;
}

/** Describes the error of a decoder, which fails anywhere in damaged data. */
export const damageOf = (cause: unknown): string =>
  cause instanceof Error && !(cause instanceof TypeError) ? cause.message : "damaged data";

/** Largest size of a text in bytes, from the limit of V8's strings. */
export const TEXT_BYTES_MAX = 500_000_000;

/** Largest size of a file of action lists in bytes: ten million actions. */
export const CSV_BYTES_MAX = 2 ** 27;

/**
 * Decodes a text in UTF-8.
 *
 * @param path for messages.
 * @throws {TypeError} when the bytes are not UTF-8, or contain a NUL.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(decodeText(Uint8Array.of(0x6e, 0xc3, 0xa9), "a.txt"), "né");
 * assert.throws(() => decodeText(Uint8Array.of(0x6e, 0xc3), "a.txt"), TypeError);
 * ```
 */
export function decodeText(bytes: Uint8Array, path: string): string {
  const nul = bytes.indexOf(0), must = "it must be a text in UTF-8";
  assertInput(nul < 0, `read ${path}`, must, `a zero at byte ${nul}`, TypeError);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw refusal(`read ${path}`, must, "other bytes", TypeError);
  }
}

/** A file with its state when it was read. */
export interface KnownFile {
  /** Its path. */
  readonly path: string;
  /** Its size in bytes. */
  readonly bytes: number;
  /** Time of its last change, in milliseconds since the epoch; 0 if unknown. */
  readonly modifiedMs: number;
  /** SHA-256 of its bytes, in hexadecimal. */
  readonly sha256: string;
}

/** Access to a disk for reading. */
export interface ReadableDisk {
  /** Opens a file for reading. */
  openSync(path: string): Pick<Deno.FsFile, "readSync" | "seekSync" | "statSync" | "close">;
}

/** Bytes of a file in memory while it is hashed. */
const PIECE_BYTES = 2 ** 22;

/**
 * Reads and hashes a file of any size.
 *
 * @param look receives its pieces in order; all except the last have the same size, a multiple of 4
 * bytes.
 * @throws {TypeError} when it is not a regular file, or changes during the read.
 * @throws {Deno.errors.NotFound} when there is no file.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
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

/**
 * Opens a file for reading by ranges. Dispose of it after use.
 *
 * @throws {Error} when it cannot be opened.
 */
export function openRanges(known: KnownFile, disk: ReadableDisk = Deno) {
  const { path } = known, told = <T>(use: () => T) => nameErrors(`Cannot read ${path}`, use);
  const file = told(() => disk.openSync(path));
  const same = () => assertSame(known, told(() => file.statSync()), "the run began");
  return {
    /**
     * Returns bytes of the file.
     *
     * @throws {Error} when they cannot be read, or the file has become shorter.
     */
    read(offset: number, length: number): Uint8Array<ArrayBuffer> {
      const bytes = new Uint8Array(length);
      told(() => file.seekSync(offset, Deno.SeekMode.Start));
      for (let at = 0; at < length;) {
        const read = told(() => file.readSync(bytes.subarray(at)));
        if (read === null) {
          same();
          throw refusal(`read ${path}`, `it must have ${offset + length} bytes`, offset + at);
        }
        at += read;
      }
      return bytes;
    },
    /**
     * Checks that the file has not changed.
     *
     * @throws {TypeError} when it has changed since it was read first.
     */
    assertSame: same,
    [Symbol.dispose]: () => file.close(),
  };
}

/** Reads ranges of a file. */
export type Ranges = ReturnType<typeof openRanges>;

const stateOf = (path: string, { size, mtime }: Deno.FileInfo): Omit<KnownFile, "sha256"> => ({
  path,
  bytes: size,
  modifiedMs: mtime?.getTime() ?? 0,
});

function assertSame(known: KnownFile, info: Deno.FileInfo, since: string): void {
  const { bytes, modifiedMs } = stateOf(known.path, info);
  if (bytes === known.bytes && modifiedMs === known.modifiedMs) return;
  const found = bytes === known.bytes
    ? `a file written at ${new Date(modifiedMs).toISOString()}`
    : `${bytes} bytes instead of ${known.bytes}`;
  throw refusal(`read ${known.path}`, `it must stay as it was when ${since}`, found, TypeError);
}

/** A string, a bracket, or a colon after a name. */
const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g;

/**
 * Returns the first repeated name within an object, at any depth; undefined if there is none.
 *
 * @param text valid JSON, since `JSON.parse` accepts repeated names.
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
