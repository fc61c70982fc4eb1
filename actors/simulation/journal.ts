/**
 * The journal: a file of JSON lines that says what a run was, step by step.
 *
 * The first line is the header. Then come steps, as {@linkcode StepRecord}s, and payloads, each
 * once and under its digest: `{"payload":"0123…","is":…}`. Isolates append to one file, whole lines
 * at a time, so the steps of each isolate are in order and those of several are mixed.
 *
 * @module
 */

import { Digest } from "./digest.ts";
import { decodePayload } from "./payload_codec.ts";
import { addStep, type HashedStep, type StepRecord, UNCHOSEN } from "./recorder.ts";

/** Version of the format that is written and read. A change breaks every committed fixture, so the
 * changelog must say it. */
export const JOURNAL_VERSION = 1;

/** What a journal is of. */
export interface JournalHeader {
  /** Tells it from other files. */
  readonly format: "troupe-journal";
  /** {@linkcode JOURNAL_VERSION} when it was written. */
  readonly version: number;
  /** Version of the package that wrote it. */
  readonly package: string;
  /** Root of all that was random. */
  readonly seed: number;
  /** Name of the strategy, or of the runtime where nobody chose. */
  readonly strategy: string;
  /** What the run was configured with. */
  readonly configuration: unknown;
  /** Modules of the actors, as the run named them, and the SHA-256 of each. */
  readonly actors: Readonly<Record<string, string>>;
  /** Where the numbers were made: the device. */
  readonly device: string;
  /** Version of Deno. */
  readonly deno: string;
}

/** A journal that was read. */
export interface Journal {
  /** What it is of. */
  readonly header: JournalHeader;
  /** Steps in the order of the file: of each isolate in its order. */
  readonly steps: readonly StepRecord[];
  /** Encoded messages by digest, if they were kept. */
  readonly payloads: ReadonlyMap<string, unknown>;
  /** The last line was not whole: the program died while it was written. */
  readonly isTorn: boolean;
}

/**
 * Reads a journal and checks it: every step's running hash must follow from the steps before it.
 *
 * @param path the file.
 * @throws {Deno.errors.NotFound} (as a rejection) when there is none.
 * @throws {SyntaxError} (as a rejection) when a line is not what it was when it was written, or the
 * format is another one.
 *
 * @example
 * ```ts
 * import { readJournal } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const path = await Deno.makeTempFile();
 * await Deno.writeTextFile(path, '{"format":"troupe-journal","version":99}\n');
 * await assert.rejects(
 *   readJournal(path),
 *   /Cannot read a journal: its version must be 1, received 99/,
 * );
 * await Deno.remove(path);
 * ```
 */
export async function readJournal(path: string): Promise<Journal> {
  return parseJournal(await Deno.readTextFile(path));
}

/** Reads the text of a journal; see {@linkcode readJournal}. */
export function parseJournal(text: string): Journal {
  const lines = text.split("\n");
  const isTorn = lines.pop() !== "";
  const header = parseLine(lines[0] ?? "", 1) as unknown as JournalHeader;
  checkHeader(header);
  const steps: StepRecord[] = [], payloads = new Map<string, unknown>();
  const hashes = new Map<number, Digest>();
  for (let index = 1; index < lines.length; index++) {
    const line = parseLine(lines[index]!, index + 1);
    if ("is" in line) payloads.set(String(line["payload"]), line["is"]);
    else {
      const step = line as unknown as StepRecord;
      checkStep(step, hashes, index + 1);
      steps.push(step);
    }
  }
  return { header, steps, payloads, isTorn };
}

/** The message of a step, as it was before it was handled. @throws {RangeError} when the journal
 * has none. */
export function payloadOf({ payloads }: Journal, { n, payload }: StepRecord): unknown {
  if (payloads.has(payload)) return decodePayload(payloads.get(payload));
  throw new RangeError(
    `Cannot replay step ${n} from its message: the journal must keep payloads, it has no ${payload}`,
  );
}

/** The parts of a step record that count in a running hash. */
export function hashedOf(step: StepRecord): HashedStep {
  const { t, actor, from, type, name = "", payload, choice = UNCHOSEN, arity = 0 } = step;
  const end = from.lastIndexOf("#");
  return {
    t,
    actor,
    from: from.slice(0, end),
    nth: Number(from.slice(end + 1)),
    type,
    name,
    payload: [parseInt(payload.slice(0, 8), 16) | 0, parseInt(payload.slice(8), 16) | 0],
    choice,
    arity,
  };
}

function parseLine(text: string, line: number): Record<string, unknown> {
  try {
    return JSON.parse(text);
  } catch {
    throw new SyntaxError(`Cannot read a journal: line ${line} must be JSON, received ${text}`);
  }
}

function checkHeader({ format, version }: JournalHeader): void {
  if (format !== "troupe-journal") {
    throw new SyntaxError(
      `Cannot read a journal: its format must be troupe-journal, received ${format}`,
    );
  }
  if (version !== JOURNAL_VERSION) {
    throw new SyntaxError(
      `Cannot read a journal: its version must be ${JOURNAL_VERSION}, received ${version}`,
    );
  }
}

function checkStep(step: StepRecord, hashes: Map<number, Digest>, line: number): void {
  let hash = hashes.get(step.isolate);
  if (!hash) hashes.set(step.isolate, hash = new Digest());
  addStep(hash, hashedOf(step));
  if (hash.toString() === step.hash) return;
  throw new SyntaxError(
    `Cannot read a journal: the hash of step ${step.n} of isolate ${step.isolate} in line ${line} ` +
      `must be ${hash}, received ${step.hash}; it was changed after it was written`,
  );
}
