/**
 * The journal: a file of JSON lines that records a run step by step.
 *
 * The first line is the header. The other lines are steps ({@linkcode StepRecord}), messages by digest
 * (`{"payload":"0123…","isolate":1,"is":…}`), and as the last line of each isolate its end with its
 * number of steps (`{"end":7,"isolate":1}`). Isolates append whole lines to one file, so the lines of
 * each isolate are in order, and lines of several isolates are mixed. Every line ends with a `sum` over
 * itself and all earlier lines of its isolate, starting with the header: see {@linkcode Checksum}.
 *
 * Messages are encoded exactly. Values without a JSON form are wrapped in a record with one key, `$`.
 * Rare values (dates, cyclic objects, arrays with holes …) are wrapped in the encoding that is sent
 * between processes, so every message that can be sent can be kept.
 *
 * @module
 */

import { assertInput, resultOr } from "../runtime/types.ts";
import { readValue, VIEWS, writeValue } from "../transports/codec.ts";
import { Digest, digestOf } from "./digest.ts";
import { addStep, type HashedStep, type StepRecord, UNCHOSEN } from "./recorder.ts";

/** Returns whether a field may have a value. */
type Is = (value: unknown) => boolean;

const isText: Is = (value) => typeof value === "string";
const isCount: Is = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const isNumber: Is = (value) => Number.isFinite(value);
const isDigest: Is = (value) => isText(value) && /^[0-9a-f]{16}$/.test(value as string);
const isListOf = (is: Is): Is => (value) => Array.isArray(value) && value.every(is);
/** Maximum nesting of a configuration. */
const MAX_DEPTH = 32;

const isShallow = (value: unknown, depth: number): boolean =>
  typeof value !== "object" || value === null ||
  depth > 0 && Object.values(value).every((item) => isShallow(item, depth - 1));

const isRecord = (value: unknown): value is Line =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isHashes: Is = (value) => isRecord(value) && Object.values(value).every(isText);

/** The fields of a kind of line with their checks; fields with `?` are optional. */
type Fields = Readonly<Record<string, readonly [is: Is, must: string]>>;

const TEXT = [isText, "text"] as const;
const COUNT = [isCount, "a whole number from 0"] as const;
const DIGEST = [isDigest, "16 hexadecimal digits"] as const;
const TEXTS = [isListOf(isText), "a list of texts"] as const;
const TRUE = [(value: unknown) => value === true, "true"] as const;

/** Fields of the header, except format and version. */
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
  "isQuestion?": TRUE,
  "isMessage?": TRUE,
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

/** Fields of a message line, except the message. */
const MESSAGE_FIELDS: Fields = { payload: DIGEST, isolate: COUNT };

/** Fields of the last line of an isolate. */
const END_FIELDS: Fields = { end: COUNT, isolate: COUNT };

/** A parsed line, not yet checked. */
type Line = Readonly<Record<string, unknown>>;

/**
 * Parses a line as a record.
 *
 * @param number of the line, from 1.
 * @throws {SyntaxError} when it is not a record.
 */
function parseLine(text: string, number: number): Line {
  const value: unknown = resultOr(() => JSON.parse(text), undefined);
  if (isRecord(value)) return value;
  throw unread(number, "be a JSON record", text);
}

/** Checks every field of a line. @throws {SyntaxError} with the first invalid field. */
function checkFields(line: Line, fields: Fields, number: number): void {
  for (const [key, [is, must]] of Object.entries(fields)) {
    const name = key.replace("?", ""), value = Object.hasOwn(line, name) ? line[name] : undefined;
    const isRight = value === undefined ? name !== key : is(value);
    assertLine(isRight, number, `have as "${name}" ${must}`, value);
  }
}

/** Throws {@linkcode unread} unless a condition holds. */
function assertLine(holds: boolean, number: number, must: string, received: unknown): void {
  if (!holds) throw unread(number, must, received);
}

/** Returns the error of an invalid line. */
function unread(number: number, must: string, received: unknown): SyntaxError {
  return new SyntaxError(
    `Cannot read a journal: line ${number} must ${must}, received ${excerpt(received)}`,
  );
}

/** Maximum number of characters shown of a value. */
const MAX_SHOWN = 80;

/** Formats any value on one line. */
function excerpt(value: unknown): string {
  if (value === undefined) return "none";
  if (typeof value === "string") return JSON.stringify(value.slice(0, MAX_SHOWN));
  if (typeof value !== "object" || value === null) return String(value);
  return Array.isArray(value) ? "a list" : "a record";
}

/** Returns the parts of a step record in a running hash. */
export function hashedOf(step: StepRecord): HashedStep {
  const { from, name = "", choice = UNCHOSEN, arity = 0 } = step, end = from.lastIndexOf("#");
  const lane = (at: number) => parseInt(step.payload.slice(at, at + 8), 16) | 0;
  const payload = [lane(0), lane(8)] as const, nth = Number(from.slice(end + 1));
  return { ...step, from: from.slice(0, end), nth, name, payload, choice, arity };
}

/** Maximum length of the first line; a header is much shorter. */
const MAX_HEADER_BYTES = 2 ** 22;

/** Maximum length of a line. */
export const MAX_LINE_BYTES = 2 ** 28;

/** Bytes of a read. */
const CHUNK_BYTES = 2 ** 18;

const LINE_END = 0x0a, RECORD_BEGIN = 0x7b;

/**
 * Calls a function with each line of a file.
 *
 * @returns true if the last line has no line end.
 * @throws {Deno.errors.NotFound} (as a rejection) when the file does not exist.
 * @throws {TypeError} (as a rejection) when the path is a folder, a pipe or a device.
 * @throws {SyntaxError} (as a rejection) when a line is too long, is not a record, or is not UTF-8.
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
    assertLine(length <= limit, number, `have at most ${limit} bytes`, "more");
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

/** Text between the record of a line and its sum. */
const BEFORE_SUM = ',"sum":"';

/** Length of the sum at the end of a line, including the end of the record. */
const SUM_LENGTH = BEFORE_SUM.length + 16 + '"}'.length;

const ENCODER = new TextEncoder();

/** Buffer for short lines: allocating an array for each line would take longer than its sum. */
const SCRATCH = new Uint8Array(1 << 14);

/** Returns the bytes of a text, which are valid until the next call. */
function textBytes(text: string): Uint8Array<ArrayBuffer> {
  // A UTF-16 code unit needs at most three bytes.
  if (3 * text.length > SCRATCH.length) return ENCODER.encode(text);
  return SCRATCH.subarray(0, ENCODER.encodeInto(text, SCRATCH).written);
}

/** Adds sums to lines, or computes the expected sums of lines. */
export class Checksum {
  readonly #digest = new Digest();
  /** The sum so far. */
  #lanes: readonly [number, number];

  /**
   * Starts a chain of lines: the header, or the lines of an isolate after the header.
   *
   * @param header sum of the header; empty for the header.
   * @param isolate number of the isolate.
   */
  constructor(header = "", isolate = 0) {
    this.#lanes = this.#digest.text(header).word(isolate).lanes();
  }

  /** Adds the sum to the text of a record that is not empty. */
  close(record: string): string {
    const text = record.slice(0, -1);
    return `${text}${BEFORE_SUM}${this.#next(text)}"}`;
  }

  /** Returns the expected sum of the next line. */
  sumOf(line: string): string {
    return this.#next(line.slice(0, -SUM_LENGTH));
  }

  #next(text: string): string {
    const { buffer, byteOffset, byteLength } = textBytes(text);
    const digest = this.#digest.reset().word(this.#lanes[0]).word(this.#lanes[1]);
    this.#lanes = digest.bytes(buffer, byteOffset, byteLength).lanes();
    return digest.toString();
  }
}

/** Returns the sum at the end of a line, or `none`. */
export function sumIn(line: string): string {
  const end = line.slice(-SUM_LENGTH);
  return end.startsWith(BEFORE_SUM) && end.endsWith('"}')
    ? end.slice(BEFORE_SUM.length, -2)
    : "none";
}

/** Version of the format. Other versions are not read. */
export const JOURNAL_VERSION = 3;

/** Facts about a recorded run. */
export interface JournalHeader {
  /** Identifies the format. */
  readonly format: "troupe-journal";
  /** Version of the format. */
  readonly version: typeof JOURNAL_VERSION;
  /** Version of the package that wrote the journal. */
  readonly package: string;
  /** Seed of all random numbers. */
  readonly seed: number;
  /** Name of the strategy, or of the runtime without one. */
  readonly strategy: string;
  /** Configuration of the run. */
  readonly configuration: unknown;
  /** SHA-256 of the actors' modules and of all modules that they import, by name. A file's name is
   * its path relative to the folder of the first module. */
  readonly actors: Readonly<Record<string, string>>;
  /** The device. */
  readonly device: string;
  /** Version of Deno. */
  readonly deno: string;
}

/** A parsed journal. */
export interface Journal {
  /** Facts about the run. */
  readonly header: JournalHeader;
  /** Steps in the order of the file, which is the order of each isolate. */
  readonly steps: readonly StepRecord[];
  /** Encoded messages by digest, if the journal has them. */
  readonly payloads: ReadonlyMap<string, unknown>;
  /** True if the last line is incomplete because the program was killed while writing it. */
  readonly isTorn: boolean;
  /** Isolates without an end: they were killed, or the journal was truncated. */
  readonly unfinished: readonly number[];
}

/**
 * Reads and verifies a journal: every line must be unchanged and follow from earlier lines.
 *
 * @param path the file.
 * @throws {Deno.errors.NotFound} (as a rejection) when the file does not exist.
 * @throws {TypeError} (as a rejection) when the path is not a file.
 * @throws {SyntaxError} (as a rejection) when a line is invalid or was changed, or the format differs.
 *
 * @example
 * ```ts
 * import { readJournal } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const path = await Deno.makeTempFile();
 * await Deno.writeTextFile(path, '{"format":"troupe-journal","version":99}\n');
 * await assert.rejects(readJournal(path), /Cannot read ".+": its version must be 3, received 99/);
 * await Deno.remove(path);
 * ```
 */
export async function readJournal(path: string): Promise<Journal> {
  const reader = new JournalReader(path);
  const isTorn = await readLines(path, (line) => reader.add(line));
  return reader.end(isTorn);
}

/** Returns the message of a step, as it was before it was handled. @throws {RangeError} when the
 * journal does not have it. */
export function payloadOf({ payloads }: Journal, { n, payload }: StepRecord): unknown {
  const must = `Cannot replay step ${n} from its message: the journal must keep payloads`;
  assertInput(payloads.has(payload), must, `none with the digest ${payload}`);
  return decodePayload(payloads.get(payload));
}

/** The first fields of the header. */
const WRITTEN = { format: "troupe-journal", version: JOURNAL_VERSION };

/** Returns the state of an isolate before its first line. */
const newIsolate = (header: string, number: number) => ({
  ...{ checksum: new Checksum(header, number), hash: new Digest(), steps: 0, isOver: false },
});

/** Parses a journal line by line. */
export class JournalReader {
  #header: JournalHeader | undefined;
  /** Sum of the header. */
  #sum = "";
  #lines = 0;
  readonly #steps: StepRecord[] = [];
  readonly #payloads = new Map<string, unknown>();
  readonly #isolates = new Map<number, ReturnType<typeof newIsolate>>();

  /** @param path the file, for messages. */
  constructor(private readonly path: string) {}

  /** Checks and adds a line. */
  add(text: string): void {
    const line = parseLine(text, ++this.#lines);
    if (!this.#header) this.#begin(line, text);
    else if ("is" in line) this.#addMessage(line, text);
    else if ("end" in line) this.#addEnd(line, text);
    else this.#addStep(line, text);
  }

  /** Returns the journal. */
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
      const rule = `Cannot read ${excerpt(this.path)}: its ${name} must be ${must}`;
      assertInput(line[name] === must, rule, excerpt(line[name]), SyntaxError);
    }
    checkFields(line, HEADER_FIELDS, 1);
    this.#header = line as unknown as JournalHeader;
    checkSum(new Checksum(), text, 1);
    this.#sum = sumIn(text);
  }

  #addStep(line: Line, text: string): void {
    checkFields(line, STEP_FIELDS, this.#lines);
    const step = line as unknown as StepRecord, isolate = this.#isolateOf(step.isolate);
    const must = `be step ${isolate.steps} of isolate ${step.isolate}`;
    assertLine(step.n === isolate.steps, this.#lines, must, step.n);
    addStep(isolate.hash, hashedOf(step));
    const what = `the hash of step ${step.n} of isolate ${step.isolate} in line ${this.#lines}`;
    assertSame(what, `${isolate.hash}`, step.hash);
    checkSum(isolate.checksum, text, this.#lines);
    isolate.steps++;
    this.#steps.push(step);
  }

  #addMessage(line: Line, text: string): void {
    checkFields(line, MESSAGE_FIELDS, this.#lines);
    checkSum(this.#isolateOf(line["isolate"] as number).checksum, text, this.#lines);
    const digest = digestOfEncoded(line["is"]);
    const must = `hold the message ${excerpt(line["payload"])}`;
    assertLine(digest === line["payload"], this.#lines, must, digest);
    this.#payloads.set(digest, line["is"]);
  }

  #addEnd(line: Line, text: string): void {
    checkFields(line, END_FIELDS, this.#lines);
    const isolate = this.#isolateOf(line["isolate"] as number);
    const must = `be the end after ${isolate.steps} steps`;
    assertLine(line["end"] === isolate.steps, this.#lines, must, line["end"]);
    checkSum(isolate.checksum, text, this.#lines);
    isolate.isOver = true;
  }

  /** Returns the state of an isolate that has not ended. */
  #isolateOf(number: number) {
    const isolate = this.#isolates.getOrInsertComputed(number, () => newIsolate(this.#sum, number));
    const must = "be of an isolate that has not ended",
      received = `a line of ${number} after its end`;
    assertLine(!isolate.isOver, this.#lines, must, received);
    return isolate;
  }
}

function checkSum(checksum: Checksum, text: string, number: number): void {
  assertSame(`the sum of line ${number}`, checksum.sumOf(text), sumIn(text));
}

/** Throws a `SyntaxError` unless a line states the computed value. */
function assertSame(what: string, computed: string, said: string): void {
  if (said === computed) return;
  const must = `Cannot read a journal: ${what} must be ${computed}, received ${excerpt(said)}`;
  throw new SyntaxError(`${must}; a line was changed, left out or moved after it was written`);
}

/** Returns the digest of an encoded message; for an invalid one, a text that is not a digest. */
const digestOfEncoded = (encoded: unknown): string =>
  resultOr(() => digestOf(decodePayload(encoded)), "no message");

/** Returns the isolates that a step started. */
function spawnedIn({ did }: StepRecord): number[] {
  return did.flatMap((deed) => {
    const [, isolate] = /^spawned .* (\d+)\/\d+$/s.exec(deed) ?? [];
    return isolate === undefined ? [] : [Number(isolate)];
  });
}

/** Kinds of typed arrays that a message may hold. */
const ARRAYS = VIEWS.filter((View) => View !== DataView) as unknown as Uint8ArrayConstructor[];

/** Thrown for a cyclic object. */
const CYCLE = Symbol("cycle");

/**
 * Encodes a message as a JSON value.
 *
 * @throws {TypeError} when it contains a value that cannot be sent to another process.
 */
export function encodePayload(value: unknown): unknown {
  try {
    return encode(value, []);
  } catch (error) {
    if (error !== CYCLE) throw error;
    return encodeClone(value as object);
  }
}

/** @param around the objects that contain the value. */
function encode(value: unknown, around: readonly object[]): unknown {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      // JSON would encode these as 0 and null.
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : { $: ["number", Object.is(value, -0) ? "-0" : String(value)] };
    case "undefined":
      return { $: ["undefined"] };
    case "bigint":
      return { $: ["bigint", String(value)] };
    case "object":
      return value === null ? null : encodeObject(value, around);
    default:
      throw unknownKind(typeof value);
  }
}

function encodeObject(value: object, around: readonly object[]): unknown {
  if (around.includes(value)) throw CYCLE;
  const within = [...around, value];
  if (Array.isArray(value)) {
    // Arrays with holes or names are rare.
    const keys = Object.keys(value), isPlain = keys.every((key, index) => key === `${index}`);
    return isPlain && keys.length === value.length
      ? value.map((item) => encode(item, within))
      : encodeClone(value);
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype === Object.prototype || prototype === null) {
    const entries = Object.entries(value).map(([key, item]) => [key, encode(item, within)]);
    // A record that looks like a wrapper must be wrapped.
    return "$" in value ? { $: ["record", entries] } : Object.fromEntries(entries);
  }
  if (ArrayBuffer.isView(value) && DECODERS.has(value.constructor.name)) {
    const { buffer, byteOffset, byteLength, constructor: { name } } = value;
    return { $: [name, bytesOf(buffer, byteOffset, byteLength)] };
  }
  if (value instanceof ArrayBuffer && !value.resizable) {
    return { $: ["ArrayBuffer", bytesOf(value)] };
  }
  if (value instanceof SharedArrayBuffer) return { $: ["SharedArrayBuffer", bytesOf(value)] };
  if (value instanceof Map) return { $: ["Map", encode([...value], within)] };
  if (value instanceof Set) return { $: ["Set", encode([...value], within)] };
  if (value instanceof Error && !Object.hasOwn(value, "cause")) {
    return { $: ["Error", value.name, value.message, value.stack ?? ""] };
  }
  return encodeClone(value);
}

function bytesOf(buffer: ArrayBufferLike, offset = 0, length = buffer.byteLength): string {
  return new Uint8Array(buffer, offset, length).slice().toBase64();
}

function encodeClone(value: object): unknown {
  try {
    const { bytes, copies } = writeValue(value);
    return { $: ["clone", bytes.toBase64(), copies.map((copy) => bytesOf(copy))] };
  } catch {
    throw unknownKind(value.constructor?.name ?? "an object");
  }
}

function unknownKind(kind: string): TypeError {
  return new TypeError(`Cannot keep a message: its values must be cloneable, received ${kind}`);
}

/** Decodes a message of {@linkcode encodePayload}. @throws {SyntaxError} when it is invalid. */
export function decodePayload(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(decodePayload);
  if (!("$" in value)) return decodeRecord(Object.entries(value));
  const [kind, ...rest] = value.$ as [string, string, string, string];
  const decode = DECODERS.get(kind);
  if (decode) return decode(...rest);
  throw new SyntaxError(`Cannot read a message: its kind must be known, received ${kind}`);
}

const decodeRecord = (entries: readonly [string, unknown][]) =>
  Object.fromEntries(entries.map(([key, item]) => [key, decodePayload(item)]));

/** Decoders of the items after the kind of a wrapper, by kind. */
const DECODERS = new Map<string, (first: string, second: string, third: string) => unknown>([
  ...ARRAYS.map((View) =>
    [View.name, (text: string) => new View(Uint8Array.fromBase64(text).buffer)] as const
  ),
  ["number", Number],
  ["undefined", () => undefined],
  ["bigint", BigInt],
  ["record", (entries: unknown) => decodeRecord(entries as [string, unknown][])],
  ["ArrayBuffer", (text) => Uint8Array.fromBase64(text).buffer],
  ["SharedArrayBuffer", (text) => {
    const bytes = Uint8Array.fromBase64(text), shared = new SharedArrayBuffer(bytes.length);
    new Uint8Array(shared).set(bytes);
    return shared;
  }],
  ["clone", (text, copies: unknown) => {
    const buffers = (copies as string[]).map((copy) => Uint8Array.fromBase64(copy).buffer);
    return readValue(Uint8Array.fromBase64(text), buffers);
  }],
  ["Map", (entries) => new Map(decodePayload(entries) as [unknown, unknown][])],
  ["Set", (items) => new Set(decodePayload(items) as unknown[])],
  ["Error", (name, message, stack) => Object.assign(new Error(message), { name, stack })],
]);
