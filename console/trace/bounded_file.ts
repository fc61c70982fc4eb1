/**
 * A file that grows text by text, within a bound, and outlives a disk that takes no more.
 *
 * @module
 */

import { existsSync } from "node:fs";

/** Options of a {@linkcode BoundedFile}. */
interface BoundedFileOptions {
  /** The file; what it holds is replaced. */
  readonly path: string;
  /** What it is, in words: `the trace`. */
  readonly what: string;
  /** The most bytes that it may have. */
  readonly bytesMax: number;
  /** Receives the reason when the disk takes no more, once. */
  readonly announce: (line: string) => void;
}

/** A file that is being written. */
export class BoundedFile implements Disposable {
  /** Whether the disk took no more; nothing is added any more. */
  hasFailed = false;
  readonly #file: Deno.FsFile;

  /**
   * Begins a file, or goes on with one.
   *
   * @param size bytes of what it holds that stay. Default: none.
   * @throws {RangeError} when it cannot be written.
   */
  constructor(private readonly options: BoundedFileOptions, public size = 0) {
    this.#file = openToWrite(options, size === 0);
    if (size > 0) cut(this.#file, size);
  }

  /**
   * Adds a text, all of it or nothing.
   *
   * @param leaving room that must be left after it, in bytes. Default 0.
   * @returns whether there was room and the disk took it.
   */
  add(text: string, leaving = 0): boolean {
    const { path, what, bytesMax, announce } = this.options, bytes = ENCODER.encode(text);
    if (this.hasFailed || this.size + bytes.length + leaving > bytesMax) return false;
    try {
      for (let done = 0; done < bytes.length;) done += this.#file.writeSync(bytes.subarray(done));
      this.size += bytes.length;
    } catch (error) {
      // Between two texts there would be part of one.
      this.hasFailed = true;
      announce(`Cannot write ${what} to ${path}: ${(error as Error).message}; the run goes on`);
      cut(this.#file, this.size);
    }
    return !this.hasFailed;
  }

  [Symbol.dispose](): void {
    this.#file.close();
  }
}

const ENCODER = new TextEncoder();

/** What is left of a text that was not written whole. */
function cut(file: Deno.FsFile, size: number): void {
  try {
    file.truncateSync(size);
    file.seekSync(size, Deno.SeekMode.Start);
  } catch {
    // Readers pass over part of a line at the end.
  }
}

function openToWrite({ path, what }: BoundedFileOptions, truncate: boolean): Deno.FsFile {
  try {
    // To open a pipe waits for its other end.
    if (existsSync(path) && Deno.lstatSync(path).isFifo) throw new TypeError("a pipe");
    return Deno.openSync(path, { write: true, create: true, truncate });
  } catch (error) {
    const { message } = error as Error;
    throw new RangeError(
      `Cannot write ${what} to ${path}: it must be a file that can be written, received ${message}`,
      { cause: error },
    );
  }
}
