/**
 * What the lines of a journal must look like, whoever wrote them.
 *
 * @module
 */

import { UNCHOSEN } from "./recorder.ts";
import type { HashedStep, StepRecord } from "./recorder.ts";

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
export type Fields = Readonly<Record<string, readonly [is: Is, must: string]>>;

const TEXT = [isText, "text"] as const;
const COUNT = [isCount, "a whole number from 0"] as const;
const DIGEST = [isDigest, "16 hexadecimal digits"] as const;
const TEXTS = [isListOf(isText), "a list of texts"] as const;

/** Fields of the header, but those that tell it from other files. */
export const HEADER_FIELDS: Fields = {
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
export const STEP_FIELDS: Fields = {
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
export const MESSAGE_FIELDS: Fields = { payload: DIGEST, isolate: COUNT };

/** Fields of the end of an isolate. */
export const END_FIELDS: Fields = { end: COUNT, isolate: COUNT };

/** A record of a line, whatever it is. */
export type Line = Readonly<Record<string, unknown>>;

/**
 * Reads a line as a record.
 *
 * @param number counts lines from 1.
 * @throws {SyntaxError} when it is none.
 */
export function parseLine(text: string, number: number): Line {
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
export function checkFields(line: Line, fields: Fields, number: number): void {
  for (const [key, [is, must]] of Object.entries(fields)) {
    const name = key.replace("?", ""), value = Object.hasOwn(line, name) ? line[name] : undefined;
    if (value === undefined ? name !== key : is(value)) continue;
    throw unread(number, `have as "${name}" ${must}`, value);
  }
}

/** The error of a line that is not as it must be. */
export function unread(number: number, must: string, received: unknown): SyntaxError {
  return new SyntaxError(
    `Cannot read a journal: line ${number} must ${must}, received ${excerpt(received)}`,
  );
}

/** Characters of a value that are shown. */
const MAX_SHOWN = 80;

/** A value that may be anything, on one line. */
export function excerpt(value: unknown): string {
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
