/**
 * Writes journals, so that a killed program loses only what it did since the last flush.
 *
 * @module
 */

import about from "../../deno.json" with { type: "json" };
import type { Observer, ObserverSpec } from "../runtime/observer.ts";
import { JOURNAL_VERSION, type JournalHeader } from "./journal.ts";
import { encodePayload } from "./payload_codec.ts";
import { Recorder, type StepRecord } from "./recorder.ts";

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
  /** Absolute URLs of the modules of the actors; their hashes are written down. */
  readonly actors?: readonly string[];
  /** Where the numbers are made. */
  readonly device?: string;
  /** Whether messages are kept, so that an actor can be replayed from its inbox. Default false. */
  readonly payloads?: boolean;
  /** Most real milliseconds between two flushes. Default {@linkcode FLUSH_MS}. */
  readonly flushMs?: number;
}

/** Default of {@linkcode JournalOptions.flushMs}. */
export const FLUSH_MS = 100;

/** Characters that are written at once, at most: memory, not loss, is what this bounds. */
const BUFFER_LENGTH = 1 << 16;

/**
 * Begins a journal: writes its header.
 *
 * @param options what it says of the run.
 * @throws {TypeError} (as a rejection) when a module cannot be read to be hashed.
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
  const { path, payloads = false, flushMs = FLUSH_MS } = options;
  await Deno.writeTextFile(path, `${JSON.stringify(await headerOf(options))}\n`);
  const init: AppenderInit = { path, payloads, flushMs };
  return { module: import.meta.url, export: "openAppender", init };
}

async function headerOf(options: JournalOptions): Promise<JournalHeader> {
  const { seed = 0, strategy = "real", configuration, actors = [], device = "none" } = options;
  return {
    format: "troupe-journal",
    version: JOURNAL_VERSION,
    package: packageVersion,
    seed,
    strategy,
    configuration: configuration ?? null,
    actors: Object.fromEntries(
      await Promise.all(actors.map(async (module) => [nameOf(module), await hashModule(module)])),
    ),
    device,
    deno: Deno.version.deno,
  };
}

/** The version of this package. */
export const packageVersion: string = about.version;

/** A module's name in a journal: without the folders of the machine that it was written on. */
export function nameOf(module: string): string {
  return module.startsWith("file:") ? module.slice(module.lastIndexOf("/") + 1) : module;
}

/** SHA-256 of a module's text, in hexadecimal digits. Line ends count alike on all systems. */
export async function hashModule(module: string): Promise<string> {
  const response = await fetch(module).catch((error) => error as Error);
  if (response instanceof Error || !response.ok) {
    throw new TypeError(`Cannot write a journal: ${module} must be a module that can be read`);
  }
  const text = (await response.text()).replaceAll("\r\n", "\n");
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return new Uint8Array(hash).toHex();
}

/** What an isolate needs to append to a journal. */
interface AppenderInit {
  readonly path: string;
  readonly payloads: boolean;
  readonly flushMs: number;
}

/**
 * Opens a journal that was begun, to append the steps of an isolate.
 *
 * @param isolate number of the isolate.
 * @param init where and what, from {@linkcode beginJournal}.
 */
export function openAppender(isolate: number, init: unknown): Observer {
  const { path, payloads, flushMs } = init as AppenderInit;
  const pen = openPen(path, flushMs);
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

/** Where steps and messages are written down. */
export interface Pen {
  /** Writes a step; see {@linkcode SimulateOptions.onStep}. */
  readonly onStep: (step: StepRecord) => void;
  /** Writes a message, once; see {@linkcode SimulateOptions.onMessage}. */
  readonly onMessage: (digest: string, message: unknown) => void;
  /** Writes what was not written yet and closes the file. */
  readonly close: () => void;
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
  await beginJournal(options);
  return openPen(options.path, options.flushMs ?? FLUSH_MS);
}

/** Opens a journal to append whole lines to it, some at a time. */
function openPen(path: string, flushMs: number): Pen {
  // One call of the system appends whole lines, so isolates do not mix within a line.
  const file = Deno.openSync(path, { append: true }), encoder = new TextEncoder();
  const known = new Set<string>();
  let text = "", last = performance.now();
  const flush = () => {
    for (let bytes = encoder.encode(text); bytes.length > 0;) {
      bytes = bytes.subarray(file.writeSync(bytes));
    }
    text = "";
    last = performance.now();
  };
  const close = () => {
    removeEventListener("unload", flush);
    flush();
    file.close();
  };
  addEventListener("unload", flush);
  return {
    onStep(step) {
      text += `${JSON.stringify(step)}\n`;
      if (text.length > BUFFER_LENGTH || performance.now() - last >= flushMs) flush();
    },
    onMessage(digest, message) {
      if (known.has(digest)) return;
      known.add(digest);
      text += `${JSON.stringify({ payload: digest, is: encodePayload(message) })}\n`;
    },
    close,
  };
}
