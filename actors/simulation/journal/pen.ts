/**
 * The pen of a journal: appends sealed lines to its file, some at a time.
 *
 * [Note: a full disk] A line of which only a part could be written is the last of its isolate, so the
 * journal stays one that can be read: its last line is torn, or its isolate has no end.
 *
 * @module
 */

import { MAX_LINE_BYTES } from "./journal_text.ts";
import { encodePayload } from "./payload_codec.ts";
import type { StepRecord } from "./recorder.ts";
import { Seal } from "./seal.ts";

/** Where steps and messages are written down. */
export interface Pen {
  /** Writes a step; see {@linkcode SimulateOptions.onStep}. */
  readonly onStep: (step: StepRecord) => void;
  /** Writes a message, but for one that is known or too long to be read again; see
   * {@linkcode SimulateOptions.onMessage}. */
  readonly onMessage: (digest: string, message: unknown) => void;
  /** Writes what was not written yet and the end, and closes the file. */
  readonly close: () => void;
}

/** What a pen writes. */
export interface PenOptions {
  readonly path: string;
  /** Sum of the header. */
  readonly header: string;
  /** Number of the isolate. */
  readonly isolate: number;
  /** Most real milliseconds between two flushes. */
  readonly flushMs: number;
  /** Told once when the file takes no more; nothing is written from then on. */
  readonly onFailure: (error: Error) => void;
}

/** Characters that are written at once, at most: memory, not loss, is what this bounds. */
const BUFFER_LENGTH = 1 << 16;

/** Messages that are known to be written: one that was forgotten is written again. */
const MAX_KNOWN = 1 << 14;

/** The error of a journal that cannot be written. */
export function unwritten(path: string, cause: unknown): Error {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new Error(
    `Cannot write the journal ${path}: its file must take what is written, received "${why}"`,
    { cause },
  );
}

/** Opens a journal that was begun. @throws {Error} when its file cannot be opened. */
export function openPen({ path, header, isolate, flushMs, onFailure }: PenOptions): Pen {
  // One call of the system appends whole lines, so isolates do not mix within a line.
  const file = Deno.openSync(path, { append: true }), encoder = new TextEncoder();
  const seal = new Seal(header, isolate), known = new Set<string>();
  let text = "", last = performance.now(), steps = 0, hasFailed = false;
  const add = (record: string) => void (text += `${seal.close(record)}\n`);
  const flush = () => {
    try {
      if (!hasFailed) writeAll(file, encoder.encode(text));
    } catch (error) {
      hasFailed = true;
      onFailure(unwritten(path, error));
    }
    text = "";
    last = performance.now();
  };
  // Who ends the program says nothing of the end of its actors.
  addEventListener("unload", flush);
  return {
    onStep(step) {
      if (hasFailed) return;
      add(JSON.stringify(step));
      steps++;
      if (text.length > BUFFER_LENGTH || performance.now() - last >= flushMs) flush();
    },
    onMessage(digest, message) {
      if (hasFailed || known.has(digest)) return;
      const record = JSON.stringify({ payload: digest, isolate, is: encodePayload(message) });
      if (record.length > MAX_LINE_BYTES / MAX_CHARACTER_BYTES) return;
      if (known.size >= MAX_KNOWN) known.clear();
      known.add(digest);
      add(record);
    },
    close() {
      removeEventListener("unload", flush);
      if (!hasFailed) add(JSON.stringify({ end: steps, isolate }));
      flush();
      file.close();
    },
  };
}

/** Bytes of the longest character, of those that are one unit of a text. */
const MAX_CHARACTER_BYTES = 3;

function writeAll(file: Deno.FsFile, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
}
