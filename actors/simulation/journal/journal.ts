/**
 * The journal: a file of JSON lines that says what a run was, step by step.
 *
 * The first line is the header. Then come steps, as {@linkcode StepRecord}s, messages, each under
 * its digest: `{"payload":"0123…","isolate":1,"is":…}`, and as the last line of an isolate its end
 * with the number of its steps: `{"end":7,"isolate":1}`. Isolates append to one file, whole lines
 * at a time, so the lines of each isolate are in order and those of several are mixed. Every line
 * ends with a `sum` of itself and of all before it that its isolate wrote, the header first: see
 * {@linkcode Seal}.
 *
 * @module
 */

import { Digest, digestOf } from "../digest.ts";
import {
  checkFields,
  END_FIELDS,
  excerpt,
  hashedOf,
  HEADER_FIELDS,
  type Line,
  MESSAGE_FIELDS,
  parseLine,
  STEP_FIELDS,
  unread,
} from "./journal_lines.ts";
import { readLines } from "./journal_text.ts";
import { decodePayload } from "./payload_codec.ts";
import { addStep, type StepRecord } from "./recorder.ts";
import { Seal, sumIn } from "./seal.ts";

/** Version of the format. No other is read. */
export const JOURNAL_VERSION = 2;

/** What a journal is of. */
export interface JournalHeader {
  /** Tells it from other files. */
  readonly format: "troupe-journal";
  /** Version of the format. */
  readonly version: typeof JOURNAL_VERSION;
  /** Version of the package that wrote it. */
  readonly package: string;
  /** Root of all that was random. */
  readonly seed: number;
  /** Name of the strategy, or of the runtime where nobody chose. */
  readonly strategy: string;
  /** What the run was configured with. */
  readonly configuration: unknown;
  /** Modules of the actors and what they import, as {@linkcode hashModules} names them, and the
   * SHA-256 of each. */
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
  /** Isolates of which the end is missing: they were killed, or the journal was cut. */
  readonly unfinished: readonly number[];
}

/**
 * Reads a journal and checks it: every line must be what was written, and follow from the lines
 * before it.
 *
 * @param path the file.
 * @throws {Deno.errors.NotFound} (as a rejection) when there is none.
 * @throws {TypeError} (as a rejection) when it is no file.
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
 * await assert.rejects(readJournal(path), /Cannot read ".+": its version must be 2, received 99/);
 * await Deno.remove(path);
 * ```
 */
export async function readJournal(path: string): Promise<Journal> {
  const reader = new Reader(path);
  const isTorn = await readLines(path, (line) => reader.add(line));
  return reader.end(isTorn);
}

/** Reads the text of a journal; see {@linkcode readJournal}. */
export function parseJournal(text: string, path = "journal"): Journal {
  const lines = text.split("\n"), reader = new Reader(path);
  const isTorn = lines.pop() !== "";
  for (const line of lines) reader.add(line);
  return reader.end(isTorn);
}

/** The message of a step, as it was before it was handled. @throws {RangeError} when the journal
 * has none. */
export function payloadOf({ payloads }: Journal, { n, payload }: StepRecord): unknown {
  if (payloads.has(payload)) return decodePayload(payloads.get(payload));
  throw new RangeError(
    `Cannot replay step ${n} from its message: the journal must keep payloads, it has no ${payload}`,
  );
}

/** The first fields of the header. */
const WRITTEN = { format: "troupe-journal", version: JOURNAL_VERSION };

/** The lines that were read of an isolate, of which there are none yet. */
const newIsolate = (header: string, number: number) => ({
  ...{ seal: new Seal(header, number), hash: new Digest(), steps: 0, isOver: false },
});

/** Takes in a journal line by line. */
class Reader {
  #header: JournalHeader | undefined;
  /** Sum of the header. */
  #sum = "";
  #lines = 0;
  readonly #steps: StepRecord[] = [];
  readonly #payloads = new Map<string, unknown>();
  readonly #isolates = new Map<number, ReturnType<typeof newIsolate>>();

  /** @param path the file, for errors. */
  constructor(private readonly path: string) {}

  /** Checks a line and takes it in. */
  add(text: string): void {
    const line = parseLine(text, ++this.#lines);
    if (!this.#header) this.#begin(line, text);
    else if ("is" in line) this.#addMessage(line, text);
    else if ("end" in line) this.#addEnd(line, text);
    else this.#addStep(line, text);
  }

  /** All that was read. */
  end(isTorn: boolean): Journal {
    if (!this.#header) throw unread(1, "be the header of a journal", undefined);
    const isolates = new Set([0, ...this.#isolates.keys(), ...this.#steps.flatMap(spawnedIn)]);
    const unfinished = [...isolates].filter((one) => !this.#isolates.get(one)?.isOver);
    return {
      header: this.#header,
      steps: this.#steps,
      payloads: this.#payloads,
      isTorn,
      unfinished: unfinished.sort((a, b) => a - b),
    };
  }

  #begin(line: Line, text: string): void {
    for (const [name, must] of Object.entries(WRITTEN)) {
      const received = line[name];
      if (received === must) continue;
      throw new SyntaxError(
        `Cannot read ${excerpt(this.path)}: its ${name} must be ${must}, received ${
          excerpt(received)
        }`,
      );
    }
    checkFields(line, HEADER_FIELDS, 1);
    this.#header = line as unknown as JournalHeader;
    checkSum(new Seal(), text, 1);
    this.#sum = sumIn(text);
  }

  #addStep(line: Line, text: string): void {
    checkFields(line, STEP_FIELDS, this.#lines);
    const step = line as unknown as StepRecord, isolate = this.#isolateOf(step.isolate);
    if (step.n !== isolate.steps) {
      throw unread(this.#lines, `be step ${isolate.steps} of isolate ${step.isolate}`, step.n);
    }
    addStep(isolate.hash, hashedOf(step));
    if (isolate.hash.toString() !== step.hash) {
      throw new SyntaxError(
        `Cannot read a journal: the hash of step ${step.n} of isolate ${step.isolate} in line ` +
          `${this.#lines} must be ${isolate.hash}, received ${step.hash}; it was changed after it ` +
          "was written",
      );
    }
    checkSum(isolate.seal, text, this.#lines);
    isolate.steps++;
    this.#steps.push(step);
  }

  #addMessage(line: Line, text: string): void {
    checkFields(line, MESSAGE_FIELDS, this.#lines);
    checkSum(this.#isolateOf(line["isolate"] as number).seal, text, this.#lines);
    const digest = digestOfEncoded(line["is"]);
    if (digest !== line["payload"]) {
      throw unread(this.#lines, `hold the message ${excerpt(line["payload"])}`, digest);
    }
    this.#payloads.set(digest, line["is"]);
  }

  #addEnd(line: Line, text: string): void {
    checkFields(line, END_FIELDS, this.#lines);
    const isolate = this.#isolateOf(line["isolate"] as number);
    if (line["end"] !== isolate.steps) {
      throw unread(this.#lines, `be the end after ${isolate.steps} steps`, line["end"]);
    }
    checkSum(isolate.seal, text, this.#lines);
    isolate.isOver = true;
  }

  /** What was read of an isolate that has not ended. */
  #isolateOf(number: number) {
    const isolate = this.#isolates.getOrInsertComputed(number, () => newIsolate(this.#sum, number));
    if (!isolate.isOver) return isolate;
    throw unread(this.#lines, `be of an isolate that goes on`, `a line of ${number} after its end`);
  }
}

function checkSum(seal: Seal, text: string, number: number): void {
  const expected = seal.sumOf(text), received = sumIn(text);
  if (received === expected) return;
  throw new SyntaxError(
    `Cannot read a journal: the sum of line ${number} must be ${expected}, received ` +
      `${excerpt(received)}; a line was changed, left out or moved after it was written`,
  );
}

/** The digest of a message that is kept; of what is none, no digest that a message can have. */
function digestOfEncoded(encoded: unknown): string {
  try {
    return digestOf(decodePayload(encoded));
  } catch {
    return "no message";
  }
}

/** The isolates that a step says it started. */
function spawnedIn({ did }: StepRecord): number[] {
  return did.flatMap((deed) => {
    const [, isolate] = /^spawned .* (\d+)\/\d+$/.exec(deed) ?? [];
    return isolate === undefined ? [] : [Number(isolate)];
  });
}
