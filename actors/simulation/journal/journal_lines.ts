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
const isTrue: Is = (value) => value === true;
const isAnything: Is = () => true;

/** Deepest nesting of a configuration. */
const MAX_DEPTH = 32;

const isShallow = (value: unknown, depth: number): boolean =>
  typeof value !== "object" || value === null ||
  depth > 0 && Object.values(value).every((item) => isShallow(item, depth - 1));

const isHashes: Is = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) &&
  Object.values(value).every(isText);

/** A field: what it must be, in words, and whether it may be left out. */
interface Field {
  readonly is: Is;
  readonly must: string;
  readonly mayMiss?: true;
}

/** The fields of one kind of line. */
export type Fields = Readonly<Record<string, Field>>;

const TEXT = { is: isText, must: "text" } as const;
const COUNT = { is: isCount, must: "a whole number from 0" } as const;
const NUMBER = { is: isNumber, must: "a number" } as const;
const DIGEST = { is: isDigest, must: "16 hexadecimal digits" } as const;
const TEXTS = { is: isListOf(isText), must: "a list of texts" } as const;
const optional = <F extends Field>(field: F) => ({ ...field, mayMiss: true } as const);

/** Fields of the header, but those that tell it from other files. */
export const HEADER_FIELDS: Fields = {
  package: TEXT,
  seed: { is: Number.isSafeInteger, must: "a whole number" },
  strategy: TEXT,
  configuration: {
    is: (value) => isShallow(value, MAX_DEPTH),
    must: `nested at most ${MAX_DEPTH} deep`,
  },
  actors: { is: isHashes, must: "a record of texts" },
  device: TEXT,
  deno: TEXT,
};

/** Fields of a step. */
export const STEP_FIELDS: Fields = {
  n: COUNT,
  isolate: COUNT,
  t: NUMBER,
  actor: TEXT,
  from: {
    is: (value) => isText(value) && /#\d{1,15}$/.test(value as string),
    must: "an actor and a number, such as stage-1#7",
  },
  type: TEXT,
  name: optional(TEXT),
  isQuestion: optional({ is: isTrue, must: "true" }),
  payload: DIGEST,
  choice: optional(COUNT),
  arity: optional(COUNT),
  waits: optional(COUNT),
  faults: optional(TEXTS),
  timers: optional(COUNT),
  did: TEXTS,
  reads: optional({ is: isListOf(isNumber), must: "a list of numbers" }),
  state: optional(DIGEST),
  chain: DIGEST,
  hash: DIGEST,
};

/** Fields of a message that is kept, since lines are sealed. */
export const MESSAGE_FIELDS: Fields = {
  payload: DIGEST,
  isolate: COUNT,
  is: { is: isAnything, must: "a message" },
};

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
  for (const [name, { is, must, mayMiss }] of Object.entries(fields)) {
    const value = Object.hasOwn(line, name) ? line[name] : undefined;
    if (value === undefined ? mayMiss : is(value)) continue;
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
