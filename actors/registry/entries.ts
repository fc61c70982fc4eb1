/**
 * The entries of a registry's file, which may be a stranger's: checked, and bounded.
 *
 * @module
 */

import { didYouMean } from "../run/options/did_you_mean.ts";
import { PART_KINDS, type PartKind } from "./part.ts";

/** An entry as it stands in a file. */
export interface Entry {
  /** A specifier; one that begins with `./` or `../` is relative to the file. */
  readonly from: string;
  /** Default `actor`. */
  readonly kind?: PartKind;
  /** Default: the kind. */
  readonly export?: string;
  /** `sha256-…`; an entry without one is not checked. */
  readonly integrity?: string;
}

/** Entries of one file. */
const ENTRIES_MAX = 1000;

/** Characters of a specifier. */
const SPECIFIER_MAX = 2000;

const KEYS = ["from", "kind", "export", "integrity"];

const PROTOCOLS = ["jsr:", "npm:", "https:", "http:", "file:"];

/** Names of entries: what can be told from a specifier, and typed. */
const NAME = /^@?\w[\w.\/-]{0,99}$/;

/**
 * Checks a name.
 *
 * @throws {RangeError} when it is none.
 */
export function checkName(cannot: string, name: string): void {
  if (NAME.test(name)) return;
  throw new RangeError(
    `${cannot}: a name must be at most 100 letters, digits, "_", "-", "." and "/", and begin with ` +
      `a letter, a digit or "@", received ${shown(name)}`,
  );
}

/** Whether a text is a specifier rather than a name. */
export const isSpecifier = (text: string): boolean => /^(\.{0,2}\/|[a-z][a-z0-9+.-]*:)/i.test(text);

/**
 * The absolute URL, or `jsr:` or `npm:` specifier, that a specifier stands for.
 *
 * @param base URL of the file or folder that a relative one is relative to.
 * @throws {TypeError} when it is none.
 */
export function resolveSpecifier(cannot: string, specifier: string, base: URL): string {
  const isRelative = /^\.{0,2}\//.test(specifier);
  const isShort = specifier.length <= SPECIFIER_MAX && !/\p{Cc}/u.test(specifier);
  const url = isShort ? URL.parse(specifier, isRelative ? base : undefined) : null;
  if (url && PROTOCOLS.includes(url.protocol)) return isRelative ? url.href : specifier;
  throw new TypeError(
    `${cannot}: a specifier must begin with ${
      ["./", ...PROTOCOLS].join(", ")
    } and have at most ${SPECIFIER_MAX} characters, received ${shown(specifier)}`,
  );
}

/**
 * Checks the entries of a file.
 *
 * @param cannot begins the sentence of a refusal.
 * @throws {TypeError} when something is of another kind than it must be.
 * @throws {RangeError} when a value is not what it may be.
 */
export function checkEntries(cannot: string, actors: unknown): Readonly<Record<string, Entry>> {
  if (!isRecord(actors)) {
    throw new TypeError(`${cannot}: "actors" must be a record, received ${shown(actors)}`);
  }
  const names = Object.keys(actors);
  if (names.length > ENTRIES_MAX) {
    throw new RangeError(
      `${cannot}: "actors" must have at most ${ENTRIES_MAX} entries, received ${names.length}`,
    );
  }
  for (const name of names) {
    checkName(cannot, name);
    checkEntry(`${cannot}: the entry "${name}"`, actors[name]);
  }
  return actors as Record<string, Entry>;
}

function checkEntry(entry: string, value: unknown): void {
  if (!isRecord(value)) {
    throw new TypeError(`${entry} must be a record with "from", received ${shown(value)}`);
  }
  for (const key of Object.keys(value)) {
    if (KEYS.includes(key)) continue;
    throw new TypeError(
      `${entry} must have no keys but ${KEYS.join(", ")}, received ${shown(key)}${
        didYouMean(key, KEYS)
      }`,
    );
  }
  const { from, kind = "actor", export: exported = "", integrity } = value;
  for (const [key, text] of Object.entries({ from, export: exported })) {
    if (typeof text === "string" && text.length <= SPECIFIER_MAX) continue;
    throw new TypeError(`${entry} must have a text as "${key}", received ${shown(text)}`);
  }
  if (!PART_KINDS.includes(kind as PartKind)) {
    throw new RangeError(
      `${entry} must have a kind of ${PART_KINDS.join(", ")}, received ${shown(kind)}${
        didYouMean(String(kind), PART_KINDS)
      }`,
    );
  }
  if (integrity === undefined) return;
  if (typeof integrity === "string" && /^sha256-[A-Za-z0-9+/]{43}=$/.test(integrity)) return;
  throw new RangeError(
    `${entry} must have an integrity of sha256- and 44 characters of base64, received ${
      shown(integrity)
    }`,
  );
}

type Values = Readonly<Record<string, unknown>>;

/** Whether a value is a record, as JSON has them. */
export const isRecord = (value: unknown): value is Values =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A value on one line, not longer than a reader needs. */
function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 100 ? `${text.slice(0, 100)}…` : text;
}
