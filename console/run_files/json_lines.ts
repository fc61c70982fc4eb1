/**
 * Files of JSON lines, read as they grow: piece by piece, line by line.
 *
 * @module
 */

import { inOneLine, quoted } from "../escape.ts";

/** Bytes of a line: a record is flat, with a number for each of at most some thousand workers. */
export const LINE_BYTES_MAX: number = 2 ** 20;

const PIECE_BYTES = 2 ** 16;

const NEW_LINE = 10;

/** A line of such a file. */
export interface JsonLine {
  readonly record: Readonly<Record<string, unknown>>;
  /** Where the next line begins, in bytes. */
  readonly end: number;
}

/**
 * Reads the whole lines of a file. A last one without its end is being written, or is what a killed
 * program has left: it is not told.
 *
 * @param from where the first line begins, in bytes.
 * @throws {SyntaxError} naming the line, by its place, that is no record or is too long.
 */
export function* readJsonLines(
  file: Deno.FsFile,
  path: string,
  from = 0,
): Generator<JsonLine, void> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const piece = new Uint8Array(PIECE_BYTES);
  let rest = new Uint8Array(), at = from;
  file.seekSync(from, Deno.SeekMode.Start);
  for (let count; (count = file.readSync(piece)) !== null;) {
    const bytes = new Uint8Array(rest.length + count);
    bytes.set(rest);
    bytes.set(piece.subarray(0, count), rest.length);
    let begin = 0;
    for (let end; (end = bytes.indexOf(NEW_LINE, begin)) >= 0; begin = end + 1) {
      const length = end + 1 - begin;
      yield {
        record: parse(path, at, () => decoder.decode(bytes.subarray(begin, end))),
        end: at += length,
      };
    }
    rest = bytes.slice(begin);
    if (rest.length > LINE_BYTES_MAX) {
      throw wrong(path, at, `one of more than ${LINE_BYTES_MAX} bytes`);
    }
  }
}

function parse(path: string, at: number, text: () => string): JsonLine["record"] {
  let value: unknown;
  try {
    value = JSON.parse(text());
  } catch (error) {
    throw wrong(path, at, inOneLine((error as Error).message));
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as JsonLine["record"];
  }
  throw wrong(path, at, quoted(value));
}

const wrong = (path: string, at: number, received: string) =>
  new SyntaxError(
    `Cannot read ${
      inOneLine(path)
    }: each line must be a JSON object, received ${received} at byte ${at}`,
  );
