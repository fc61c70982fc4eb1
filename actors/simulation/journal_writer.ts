/**
 * Writes journals, so that a killed program loses only what it did since the last flush.
 *
 * [Note: a full disk] A line of which only a part could be written is the last of its isolate, so the
 * journal stays one that can be read: its last line is torn, or its isolate has no end.
 *
 * @module
 */

import about from "../../deno.json" with { type: "json" };
import type { Observer, ObserverSpec } from "../runtime/observer.ts";
import { JOURNAL_VERSION, type JournalHeader, MAX_LINE_BYTES, Seal, sumIn } from "./journal.ts";
import { encodePayload } from "./payload_codec.ts";
import { hashModules, Recorder, type StepRecord } from "./recorder.ts";

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
interface PenOptions {
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
function unwritten(path: string, cause: unknown): Error {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new Error(
    `Cannot write the journal ${path}: its file must take what is written, received "${why}"`,
    { cause },
  );
}

/** Opens a journal that was begun. @throws {Error} when its file cannot be opened. */
function openPen({ path, header, isolate, flushMs, onFailure }: PenOptions): Pen {
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

/** What a journal says of a run besides its steps; what is left out is found out. */
export interface JournalOptions {
  /** The file; what it holds is replaced. */
  readonly path: string;
  /** Root of all that is random. Default 0. */
  readonly seed?: number;
  /** Name of the strategy, or of the runtime. Default `real`. */
  readonly strategy?: string;
  /** What the run is configured with; JSON must be able to say it. */
  readonly configuration?: unknown;
  /** Absolute URLs of the modules of the actors; the hashes of these and of all that they import
   * are written down. */
  readonly actors?: readonly string[];
  /** Where the numbers are made. */
  readonly device?: string;
  /** Whether messages are kept, so that an actor can be replayed from its inbox. Default false. */
  readonly payloads?: boolean;
  /** Most real milliseconds between two flushes. Default {@linkcode FLUSH_MS}. */
  readonly flushMs?: number;
  /**
   * Told once when the file takes no more, as on a full disk; the actors go on, and nothing is
   * written from then on. Of a system with several isolates the first one tells. Default: a line on
   * standard error; of {@linkcode writeJournal}: the error is thrown.
   */
  readonly onFailure?: (error: Error) => void;
}

/** Default of {@linkcode JournalOptions.flushMs}. */
export const FLUSH_MS = 100;

/**
 * Begins a journal: writes its header.
 *
 * @param options what it says of the run.
 * @throws {TypeError} (as a rejection) when a module cannot be read to be hashed.
 * @throws {Error} (as a rejection) when the header cannot be written.
 * @returns how isolates get to append to it, {@linkcode SystemOptions.observer}.
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
  // Functions do not travel to other isolates, and need not: all of them write to one disk.
  if (onFailure) listeners.set(path, onFailure);
  return { module: import.meta.url, export: "openAppender", init };
}

/** Writes the header, and returns its sum. */
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
  const line = new Seal().close(JSON.stringify(header));
  await Deno.writeTextFile(path, `${line}\n`).catch((error) => {
    throw unwritten(path, error);
  });
  return sumIn(line);
}

/** Who wants to be told that a journal takes no more, by its path. */
const listeners = new Map<string, (error: Error) => void>();

/** What is told of a journal that takes no more where nobody wants to be told. */
function warn(error: Error): void {
  // deno-lint-ignore no-console -- A library that goes on must say so somewhere.
  console.warn(error.message);
}

/** The version of this package. */
export const packageVersion: string = about.version;

/** What an isolate needs to append to a journal. */
interface AppenderInit extends Pick<PenOptions, "path" | "header" | "flushMs"> {
  readonly payloads: boolean;
}

/**
 * Opens a journal that was begun, to append the steps of an isolate.
 *
 * @param isolate number of the isolate.
 * @param init where and what, from {@linkcode beginJournal}.
 */
export function openAppender(isolate: number, init: unknown): Observer {
  const { path, header, payloads, flushMs } = init as AppenderInit;
  const onFailure = isolate === 0 ? listeners.get(path) ?? warn : () => {};
  if (isolate === 0) listeners.delete(path);
  const pen = openPen({ path, header, isolate, flushMs, onFailure });
  const recorder = new Recorder(isolate, {
    sink: pen.onStep,
    keep: payloads ? pen.onMessage : undefined,
  });
  return {
    begins: (actor, envelope, now) => recorder.begins(actor, envelope, now),
    did: (actor, effect) => recorder.did(actor, effect),
    ends: (actor) => recorder.ends(actor),
    closes: pen.close,
  };
}

/**
 * Begins a journal of a simulated run.
 *
 * @param options what it says of the run.
 * @returns what the simulation is given, and has to be closed after it.
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
export async function writeJournal(options: JournalOptions): Promise<Pen> {
  const { path, flushMs = FLUSH_MS } = options;
  const onFailure = options.onFailure ?? ((error: Error) => {
    throw error;
  });
  return openPen({ path, header: await writeHeader(options), isolate: 0, flushMs, onFailure });
}
