/**
 * A file that grows text by text, within a bound, and outlives a disk that takes no more.
 *
 * @module
 */

/** A file that is being written. */
export interface BoundedFile extends Disposable {
  /** Bytes that it has. */
  readonly size: number;
  /** Whether the disk took no more; nothing is added any more. */
  readonly hasFailed: boolean;
  /**
   * Adds a text, all of it or nothing.
   *
   * @param leaving room that must be left after it, in bytes. Default 0.
   * @returns whether there was room and the disk took it.
   */
  add(text: string, leaving?: number): boolean;
}

/** Where it is, and what it may become. */
export interface BoundedFileOptions {
  /** The file; what it holds is replaced. */
  readonly path: string;
  /** What it is, in words: `the trace`. */
  readonly what: string;
  /** The most bytes that it may have. */
  readonly bytesMax: number;
  /** Told once why the disk took no more. */
  readonly announce: (line: string) => void;
}

/**
 * Begins a file, or goes on with one.
 *
 * @param size how much of what it holds stays, in bytes. Default: nothing.
 * @throws {RangeError} when it cannot be written.
 */
export function openBoundedFile(
  { path, what, bytesMax, announce }: BoundedFileOptions,
  size = 0,
): BoundedFile {
  const file = openToWrite(path, what, size === 0), encoder = new TextEncoder();
  let hasFailed = false;
  if (size > 0) cut(file, size);
  return {
    get size() {
      return size;
    },
    get hasFailed() {
      return hasFailed;
    },
    add(text, leaving = 0) {
      const bytes = encoder.encode(text);
      if (hasFailed || size + bytes.length + leaving > bytesMax) return false;
      try {
        for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
        size += bytes.length;
      } catch (error) {
        // Between two texts there would be part of one.
        hasFailed = true;
        announce(`Cannot write ${what} to ${path}: ${(error as Error).message}; the run goes on`);
        cut(file, size);
      }
      return !hasFailed;
    },
    [Symbol.dispose]: () => file.close(),
  };
}

/** What is left of a text that was not written whole. */
function cut(file: Deno.FsFile, size: number): void {
  try {
    file.truncateSync(size);
    file.seekSync(size, Deno.SeekMode.Start);
  } catch {
    // Readers pass over part of a line at the end.
  }
}

function openToWrite(path: string, what: string, truncate: boolean): Deno.FsFile {
  try {
    if (Deno.lstatSync(path).isFifo) throw new TypeError("a pipe"); // to open one waits for its end
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw unwritable(path, what, error as Error);
  }
  try {
    return Deno.openSync(path, { write: true, create: true, truncate });
  } catch (error) {
    throw unwritable(path, what, error as Error);
  }
}

const unwritable = (path: string, what: string, cause: Error) =>
  new RangeError(
    `Cannot write ${what} to ${path}: it must be a file that can be written, received ${cause.message}`,
    { cause },
  );
