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

import { Digest, digestOf } from "./digest.ts";
import { decodePayload } from "./payload_codec.ts";
import { addStep, type HashedStep, type StepRecord, UNCHOSEN } from "./recorder.ts";

/** Whether a value is what a field must hold. */
type Is = (value: unknown) => boolean;

const isText: Is = (value) => typeof value === "string";
const isCount: Is = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const isNumber: Is = (value) => Number.isFinite(value);
const isDigest: Is = (value) => isText(value) && /^[0-9a-f]{16}$/.test(value as string);
const isListOf = (is: Is): Is => (value) => Array.isArray(value) && value.every(is);
/** Deepest nesting of a configuration. */
const MAX_DEPTH = 32;

const isShallow = (value: unknown, depth: number): boolean =>
  typeof value !== "object" || value === null ||
  depth > 0 && Object.values(value).every((item) => isShallow(item, depth - 1));

const isHashes: Is = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) &&
  Object.values(value).every(isText);

/** The fields of one kind of line, with what each must be; those with `?` may be left out. */
type Fields = Readonly<Record<string, readonly [is: Is, must: string]>>;

const TEXT = [isText, "text"] as const;
const COUNT = [isCount, "a whole number from 0"] as const;
const DIGEST = [isDigest, "16 hexadecimal digits"] as const;
const TEXTS = [isListOf(isText), "a list of texts"] as const;

/** Fields of the header, but those that tell it from other files. */
const HEADER_FIELDS: Fields = {
  package: TEXT,
  seed: [Number.isSafeInteger, "a whole number"],
  strategy: TEXT,
  configuration: [
    (value) => isShallow(value, MAX_DEPTH),
    `nested at most ${MAX_DEPTH} deep`,
  ],
  actors: [isHashes, "a record of texts"],
  device: TEXT,
  deno: TEXT,
};

/** Fields of a step. */
const STEP_FIELDS: Fields = {
  n: COUNT,
  isolate: COUNT,
  t: [isNumber, "a number"],
  actor: TEXT,
  from: [
    (value) => isText(value) && /#\d{1,15}$/.test(value as string),
    "an actor and a number, such as stage-1#7",
  ],
  type: TEXT,
  "name?": TEXT,
  "isQuestion?": [(value) => value === true, "true"],
  payload: DIGEST,
  "choice?": COUNT,
  "arity?": COUNT,
  "waits?": COUNT,
  "faults?": TEXTS,
  did: TEXTS,
  "reads?": [isListOf(isNumber), "a list of numbers"],
  "state?": DIGEST,
  chain: DIGEST,
  hash: DIGEST,
};

/** Fields of a message that is kept, beside the message. */
const MESSAGE_FIELDS: Fields = { payload: DIGEST, isolate: COUNT };

/** Fields of the end of an isolate. */
const END_FIELDS: Fields = { end: COUNT, isolate: COUNT };

/** A record of a line, whatever it is. */
type Line = Readonly<Record<string, unknown>>;

/**
 * Reads a line as a record.
 *
 * @param number counts lines from 1.
 * @throws {SyntaxError} when it is none.
 */
function parseLine(text: string, number: number): Line {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw unread(number, "be a JSON record", text);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Line;
  throw unread(number, "be a JSON record", text);
}

/** Checks every field of a line. @throws {SyntaxError} naming the first that is wrong. */
function checkFields(line: Line, fields: Fields, number: number): void {
  for (const [key, [is, must]] of Object.entries(fields)) {
    const name = key.replace("?", ""), value = Object.hasOwn(line, name) ? line[name] : undefined;
    if (value === undefined ? name !== key : is(value)) continue;
    throw unread(number, `have as "${name}" ${must}`, value);
  }
}

/** The error of a line that is not as it must be. */
function unread(number: number, must: string, received: unknown): SyntaxError {
  return new SyntaxError(
    `Cannot read a journal: line ${number} must ${must}, received ${excerpt(received)}`,
  );
}

/** Characters of a value that are shown. */
const MAX_SHOWN = 80;

/** A value that may be anything, on one line. */
function excerpt(value: unknown): string {
  if (value === undefined) return "none";
  if (typeof value === "string") return JSON.stringify(value.slice(0, MAX_SHOWN));
  if (typeof value !== "object" || value === null) return String(value);
  return Array.isArray(value) ? "a list" : "a record";
}

/** The parts of a step record that count in a running hash. */
export function hashedOf(step: StepRecord): HashedStep {
  const { from, name = "", choice = UNCHOSEN, arity = 0 } = step, end = from.lastIndexOf("#");
  const lane = (at: number) => parseInt(step.payload.slice(at, at + 8), 16) | 0;
  const payload = [lane(0), lane(8)] as const, nth = Number(from.slice(end + 1));
  return { ...step, from: from.slice(0, end), nth, name, payload, choice, arity };
}

/** Longest first line: a header is much shorter. */
const MAX_HEADER_BYTES = 2 ** 22;

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
async function readLines(path: string, onLine: (line: string) => void): Promise<boolean> {
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

/** What stands between the text of a line and its sum. */
const BEFORE_SUM = ',"sum":"';

/** What a line ends with: its sum and the end of its record. */
const SUM_LENGTH = BEFORE_SUM.length + 16 + '"}'.length;

const ENCODER = new TextEncoder();

/** Short lines are encoded here: an array of its own for each would cost more than its sum. */
const SCRATCH = new Uint8Array(1 << 14);

/** The bytes of a text, until the next is encoded. */
function encode(text: string): Uint8Array<ArrayBuffer> {
  // No character of UTF-16 needs more than three bytes.
  if (3 * text.length > SCRATCH.length) return ENCODER.encode(text);
  return SCRATCH.subarray(0, ENCODER.encodeInto(text, SCRATCH).written);
}

/** Seals lines one after another, or checks lines that were sealed. */
export class Seal {
  readonly #digest = new Digest();
  /** The sum so far. */
  #lanes: readonly [number, number];

  /**
   * Begins a chain of lines: the header alone, or those of an isolate, which hang on the header.
   *
   * @param header sum of the header, empty for the header itself.
   * @param isolate number of the isolate.
   */
  constructor(header = "", isolate = 0) {
    this.#lanes = this.#digest.text(header).word(isolate).lanes();
  }

  /** Adds its sum to the text of a record that is not empty. */
  close(record: string): string {
    const text = record.slice(0, -1);
    return `${text}${BEFORE_SUM}${this.#next(text)}"}`;
  }

  /** The sum that a line should have, as the next of the chain. */
  sumOf(line: string): string {
    return this.#next(line.slice(0, -SUM_LENGTH));
  }

  #next(text: string): string {
    const { buffer, byteOffset, byteLength } = encode(text);
    const digest = this.#digest.reset().word(this.#lanes[0]).word(this.#lanes[1]);
    this.#lanes = digest.bytes(buffer, byteOffset, byteLength).lanes();
    return digest.toString();
  }
}

/** The sum that a line says it has, or what stands in its place. */
export function sumIn(line: string): string {
  const end = line.slice(-SUM_LENGTH);
  return end.startsWith(BEFORE_SUM) && end.endsWith('"}')
    ? end.slice(BEFORE_SUM.length, -2)
    : "none";
}

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
