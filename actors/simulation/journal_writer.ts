/**
 * Writes journals. A killed program loses only the steps since the last flush.
 *
 * [Note: a full disk] A line that could only be written in part is the last line of its isolate, so the
 * journal stays readable: its last line is torn, or its isolate has no end.
 *
 * @module
 */

import about from "../../deno.json" with { type: "json" };
import { messageOf } from "../runtime/failure.ts";
import type { Observer, ObserverSpec } from "../runtime/observer.ts";
import {
  Checksum,
  encodePayload,
  JOURNAL_VERSION,
  type JournalHeader,
  MAX_LINE_BYTES,
  sumIn,
} from "./journal.ts";
import { hashModules, Recorder, type StepRecord } from "./recorder.ts";

/** Options of a {@linkcode JournalFile}. */
interface JournalFileOptions
  extends Required<Pick<JournalOptions, "path" | "flushMs" | "onFailure">> {
  /** Sum of the header. */
  readonly header: string;
  /** Number of the isolate. */
  readonly isolate: number;
}

/** Maximum number of buffered characters, which bounds memory. */
const BUFFER_LENGTH = 1 << 16;

/** Maximum number of known messages; after it, messages may be written again. */
const MAX_KNOWN = 1 << 14;

/** Bytes of the longest character that is one UTF-16 code unit. */
const MAX_CHARACTER_BYTES = 3;

/** Returns the error of a failed write. */
function unwritten(path: string, cause: unknown): Error {
  const must = `Cannot write the journal ${path}: its file must be writable`;
  return new Error(`${must}, received "${messageOf(cause)}"`, { cause });
}

/** Appends checksummed lines to the journal file, in batches. */
export class JournalFile {
  readonly #file: Deno.FsFile;
  readonly #checksum: Checksum;
  /** Digests of messages that were written. */
  readonly #known = new Set<string>();
  #text = "";
  #last = performance.now();
  #steps = 0;
  #hasFailed = false;

  /**
   * Opens an existing journal.
   *
   * @throws {Error} when the file cannot be opened.
   */
  constructor(private readonly options: JournalFileOptions) {
    // One system call appends whole lines, so lines of isolates do not mix.
    this.#file = Deno.openSync(options.path, { append: true });
    this.#checksum = new Checksum(options.header, options.isolate);
    // A program that exits does not close its actors.
    addEventListener("unload", this.#flush);
  }

  /** Writes a step; see {@linkcode SimulateOptions.onStep}. */
  readonly onStep = (step: StepRecord): void => {
    if (this.#hasFailed) return;
    this.#add(JSON.stringify(step));
    this.#steps++;
    const isDue = performance.now() - this.#last >= this.options.flushMs;
    if (isDue || this.#text.length > BUFFER_LENGTH) this.#flush();
  };

  /**
   * Writes a message, unless it is known or too long to be read again; see
   * {@linkcode SimulateOptions.onMessage}.
   */
  readonly onMessage = (digest: string, message: unknown): void => {
    const { isolate } = this.options;
    if (this.#hasFailed || this.#known.has(digest)) return;
    const record = JSON.stringify({ payload: digest, isolate, is: encodePayload(message) });
    if (record.length > MAX_LINE_BYTES / MAX_CHARACTER_BYTES) return;
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    this.#known.add(digest);
    this.#add(record);
  };

  /** Writes the remaining lines and the end, and closes the file. */
  readonly close = (): void => {
    removeEventListener("unload", this.#flush);
    if (!this.#hasFailed) {
      this.#add(JSON.stringify({ end: this.#steps, isolate: this.options.isolate }));
    }
    this.#flush();
    this.#file.close();
  };

  #add(record: string): void {
    this.#text += `${this.#checksum.close(record)}\n`;
  }

  readonly #flush = (): void => {
    try {
      if (!this.#hasFailed) writeAll(this.#file, new TextEncoder().encode(this.#text));
    } catch (error) {
      this.#hasFailed = true;
      this.options.onFailure(unwritten(this.options.path, error));
    }
    this.#text = "";
    this.#last = performance.now();
  };
}

function writeAll(file: Deno.FsFile, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
}

/**
 * Facts about a run in the header of its journal, and options of writing it. By default the seed is 0,
 * the strategy `real`, and the configuration, a JSON value, null.
 */
export interface JournalOptions
  extends Partial<Pick<JournalHeader, "seed" | "strategy" | "configuration" | "device">> {
  /** The file, which is replaced. */
  readonly path: string;
  /** Absolute URLs of the actors' modules. The header has hashes of them and of all modules that they
   * import. */
  readonly actors?: readonly string[];
  /** True if messages are kept, so that {@linkcode replayInbox} can replay an actor. Default false. */
  readonly payloads?: boolean;
  /** Maximum real milliseconds between two flushes. Default 100. */
  readonly flushMs?: number;
  /**
   * Called once if a write fails, as on a full disk; the actors continue, and nothing is written
   * afterwards. With several isolates, the first one reports. Default: a line on standard error;
   * {@linkcode writeJournal} throws.
   */
  readonly onFailure?: (error: Error) => void;
}

/** Default of {@linkcode JournalOptions.flushMs}. */
const FLUSH_MS = 100;

/**
 * Starts a journal of real actors: writes its header.
 *
 * @param options facts about the run.
 * @throws {TypeError} (as a rejection) when a module cannot be read to be hashed.
 * @throws {Error} (as a rejection) when the header cannot be written.
 * @returns the {@linkcode SystemOptions.observer} by which isolates append to the journal.
 *
 * @example A journal of real actors
 * ```ts
 * import { createSystem } from "@troupe/troupe/actors";
 * import { beginJournal, readJournal } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = "data:text/javascript,export const echo = (ctx) => ({ Say() { ctx.reply(1); } })";
 * const path = await Deno.makeTempFile();
 * {
 *   await using system = createSystem({ observer: await beginJournal({ path, actors: [module] }) });
 *   const echo = system.spawn({ module, export: "echo" }, undefined, { id: "echo" });
 *   await system.ask(echo, { type: "Say" });
 * }
 * const { header, steps } = await readJournal(path);
 * assert.equal(header.strategy, "real");
 * assert.deepEqual(steps.slice(0, 2).map(({ actor, type }) => `${actor} ${type}`), [
 *   "echo init",
 *   "echo Say",
 * ]);
 * await Deno.remove(path);
 * ```
 */
export async function beginJournal(options: JournalOptions): Promise<ObserverSpec> {
  const { path, payloads = false, flushMs = FLUSH_MS, onFailure } = options;
  const init: AppenderInit = { path, header: await writeHeader(options), payloads, flushMs };
  // Functions cannot be sent to other isolates; all isolates write to the same disk.
  if (onFailure) listeners.set(path, onFailure);
  return { module: import.meta.url, export: "openAppender", init };
}

/** Writes the header and returns its sum. */
async function writeHeader(options: JournalOptions): Promise<string> {
  const { path, seed = 0, strategy = "real", configuration = null } = options;
  const header: JournalHeader = {
    format: "troupe-journal",
    version: JOURNAL_VERSION,
    package: packageVersion,
    seed,
    strategy,
    configuration,
    actors: await hashModules(options.actors ?? []),
    device: options.device ?? "none",
    deno: Deno.version.deno,
  };
  const line = new Checksum().close(JSON.stringify(header));
  await Deno.writeTextFile(path, `${line}\n`).catch((error) => {
    throw unwritten(path, error);
  });
  return sumIn(line);
}

/** Receivers of write failures, by path. */
const listeners = new Map<string, (error: Error) => void>();

/** Prints a write failure for which there is no receiver. */
function warn(error: Error): void {
  // deno-lint-ignore no-console -- the run continues, so the failure must be visible
  console.warn(error.message);
}

/** The version of this package. */
export const packageVersion: string = about.version;

/** Argument of {@linkcode openAppender}. */
interface AppenderInit extends Pick<JournalFileOptions, "path" | "header" | "flushMs"> {
  readonly payloads: boolean;
}

/**
 * Opens a journal to append the steps of an isolate.
 *
 * @param isolate number of the isolate.
 * @param init from {@linkcode beginJournal}.
 */
export function openAppender(isolate: number, init: unknown): Observer {
  const { path, header, payloads, flushMs } = init as AppenderInit;
  const onFailure = isolate === 0 ? listeners.get(path) ?? warn : () => {};
  if (isolate === 0) listeners.delete(path);
  const file = new JournalFile({ path, header, isolate, flushMs, onFailure });
  return new Recorder(isolate, {
    sink: file.onStep,
    keep: payloads ? file.onMessage : undefined,
    close: file.close,
  });
}

/**
 * Starts a journal of a simulated run.
 *
 * @param options facts about the run.
 * @returns the file, whose functions are options of {@linkcode simulate}; close it after the run.
 * @throws {TypeError} (as a rejection) when a module cannot be read to be hashed.
 *
 * @example
 * ```ts
 * import { readJournal, simulate, writeJournal } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = "data:text/javascript,export const mute = () => ({ Note() {} })";
 * const path = await Deno.makeTempFile();
 * const { onStep, close } = await writeJournal({ path, strategy: "fifo" });
 * const run = await simulate({ onStep }, async ({ system, idle }) => {
 *   const mute = system.spawn({ module, export: "mute" }, undefined, { id: "mute" });
 *   system.send(mute, { type: "Note" });
 *   await idle();
 * });
 * close();
 * const { steps } = await readJournal(path);
 * assert.equal(steps.at(-1)?.hash, run.hash);
 * await Deno.remove(path);
 * ```
 */
export async function writeJournal(options: JournalOptions): Promise<JournalFile> {
  const { path, flushMs = FLUSH_MS } = options;
  const onFailure = options.onFailure ?? ((error: Error) => {
    throw error;
  });
  const header = await writeHeader(options);
  return new JournalFile({ path, header, isolate: 0, flushMs, onFailure });
}
