/**
 * The lines of a file, read within bounds: a file from elsewhere may be endless, or one line.
 *
 * @module
 */

import { excerpt, unread } from "./journal_lines.ts";

/** Longest first line: a header is much shorter. */
export const MAX_HEADER_BYTES = 2 ** 22;

/** Longest line that is written or read. */
export const MAX_LINE_BYTES = 2 ** 28;

/** Bytes that are read at once. */
const CHUNK_BYTES = 2 ** 18;

const LINE_END = 0x0a, RECORD_BEGIN = 0x7b;

/**
 * Calls back with each line of a file.
 *
 * @returns whether the last line had no end.
 * @throws {Deno.errors.NotFound} (as a rejection) when there is no file.
 * @throws {TypeError} (as a rejection) when it is no file but a folder, a pipe or a device.
 * @throws {SyntaxError} (as a rejection) when a line is too long, begins no record or is not UTF-8.
 */
export async function readLines(path: string, onLine: (line: string) => void): Promise<boolean> {
  await checkFile(path);
  using file = await Deno.open(path);
  const chunk = new Uint8Array(CHUNK_BYTES);
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let number = 1, line = "", length = 0;
  const add = (bytes: Uint8Array, isWhole: boolean) => {
    if (length === 0 && bytes.length > 0 && bytes[0] !== RECORD_BEGIN) {
      throw unread(number, "be a JSON record", new TextDecoder().decode(bytes.subarray(0, 80)));
    }
    length += bytes.length;
    const limit = number === 1 ? MAX_HEADER_BYTES : MAX_LINE_BYTES;
    if (length > limit) throw unread(number, `have at most ${limit} bytes`, "more");
    try {
      line += decoder.decode(bytes, { stream: !isWhole });
    } catch {
      throw unread(number, "be UTF-8 text", "other bytes");
    }
  };
  for (;;) {
    const count = await file.read(chunk);
    if (count === null) return length > 0;
    let begin = 0;
    for (let end; (end = chunk.indexOf(LINE_END, begin)) >= 0 && end < count; begin = end + 1) {
      add(chunk.subarray(begin, end), true);
      onLine(line);
      [line, length] = ["", 0];
      number++;
    }
    add(chunk.subarray(begin, count), false);
  }
}

async function checkFile(path: string): Promise<void> {
  const info = await Deno.stat(path).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new Deno.errors.NotFound(mustBeFile(path, "none"));
  });
  if (info.isFile) return;
  throw new TypeError(mustBeFile(path, info.isDirectory ? "a folder" : "a pipe or a device"));
}

const mustBeFile = (path: string, received: string) =>
  `Cannot read a journal: ${excerpt(path)} must be a file, received ${received}`;
