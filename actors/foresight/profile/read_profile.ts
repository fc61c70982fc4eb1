/**
 * Reads a profile, which may be a stranger's: its size is bounded before it is read, and each figure
 * is looked at before anything is computed with it.
 *
 * @module
 */

import {
  checkInputFile,
  decodeText,
  PRECISIONS,
  RECOMPUTE_POLICIES,
  repeatedKey,
} from "../../../kernels/mod.ts";
import {
  anArray,
  anInteger,
  aNumber,
  aRecord,
  type Must,
  oneOf,
  required,
} from "../../run/options/must.ts";
import { inOneLine } from "../../runtime/world/escape.ts";
import { type Profile, PROFILE_FORMAT, PROFILE_VERSION } from "./profile.ts";

/** Far more than any measurement writes. */
export const PROFILE_BYTES_MAX = 2 ** 24;

/** Characters of a text, and entries of a list or record, that a reader can want. */
const TEXT_MAX = 2000, ENTRIES_MAX = 100_000;

const CANNOT = "Cannot read the profile";

const shortText: Must = (what, value) => {
  if (value === undefined) return;
  if (typeof value === "string" && value.length <= TEXT_MAX) return;
  const received = typeof value === "string" ? `${value.length}` : typeof value;
  throw new TypeError(
    `${what} must be a text of at most ${TEXT_MAX} characters, received ${received}`,
  );
};

const shortList = (of: Must, minimum = 0): Must => (what, value) => {
  const { length = 0 } = (value ?? {}) as { readonly length?: number };
  if (length > ENTRIES_MAX) {
    throw new RangeError(`${what} must have at most ${ENTRIES_MAX} entries, received ${length}`);
  }
  anArray(of, minimum)(what, value);
};

/** More than any figure of a machine, and so little that no sum of many is infinite. */
const FIGURE_MAX = 1e18;

/** A number from 0 that a machine could have. */
const figure = aNumber(
  "a number from 0 to 1e18",
  (value) => value >= 0 && value <= FIGURE_MAX,
);

/** A record with names of its own, all of whose values are alike. */
const byName = (of: Must): Must => (what, value) => {
  if (value === undefined) return;
  aRecord({}, true)(what, value);
  const names = Object.keys(value as object);
  if (Array.isArray(value) || names.length > ENTRIES_MAX) {
    throw new TypeError(`${what} must be an object of at most ${ENTRIES_MAX} entries`);
  }
  for (const name of names) {
    shortText(`${what}: its name`, name);
    required(of)(`${what}.${inOneLine(name)}`, (value as Record<string, unknown>)[name]);
  }
};

const aboveZero = aNumber("a number above 0", (value) => value > 0 && value < Infinity);

const aCost = aRecord({ ms: required(figure), msPerMillion: required(figure) }, true);

const aLink = aRecord({ latencyMs: required(figure), bytesPerMs: aboveZero }, true);

const aLayer = aRecord({
  kind: required(shortText),
  sizes: required(byName(figure)),
  microBatch: required(anInteger(1)),
  device: required(shortText),
  precision: required(oneOf(...PRECISIONS)),
  recompute: required(oneOf(...RECOMPUTE_POLICIES)),
  atOnce: required(anInteger(1)),
  forwardMs: required(figure),
  backwardMs: required(figure),
  inputMs: figure,
  weightMs: figure,
  recomputeMs: figure,
  parameters: required(anInteger(0)),
  activationBytes: required(figure),
  outputBytes: required(figure),
  forwardFlops: required(figure),
  backwardFlops: required(figure),
}, true);

const aMachine = aRecord({
  name: required(shortText),
  cores: required(anInteger(1)),
  system: shortText,
  memoryBytes: aboveZero,
  deno: shortText,
  load: figure,
}, true);

const CLOSING = { vote: required(aCost), norm: required(aCost), end: required(aCost) };

const aClosing = aRecord({ ...CLOSING, stepMs: required(figure) }, true);

const aLoad = aRecord(
  { ...CLOSING, atOnce: required(anInteger(1)), optimizer: required(aCost) },
  true,
);

const aProfile = aRecord({
  source: required(oneOf("measured", "trace", "stated")),
  machine: required(aMachine),
  layers: required(shortList(aLayer, 1)),
  variation: shortList(aboveZero),
  model: byName(() => {}), // each is read as a flag is
  optimizer: required(aCost),
  reduce: required(aCost),
  links: required(byName(aLink)),
  dispatchMs: required(figure),
  closing: required(aClosing),
  loads: shortList(aLoad),
  notes: required(shortList(shortText)),
}, true);

/**
 * Reads a profile from its text.
 *
 * @throws {SyntaxError} when it is no JSON, was cut, or is of another format.
 * @throws {RangeError} when it is of another version, or a figure is out of its bounds.
 * @throws {TypeError} when a field is missing or of another type.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseProfile } from "@troupe/troupe/actors";
 *
 * assert.throws(() => parseProfile('{"format": "troupe-pro'), /must be a profile .* no whole JSON/);
 * assert.throws(
 *   () => parseProfile('{"format": "troupe-profile", "version": 2}'),
 *   /its version must be 1, received 2/,
 * );
 * ```
 */
export function parseProfile(text: string): Profile {
  const value = valueOf(text), { format, version } = value;
  if (format !== PROFILE_FORMAT) {
    throw strange(format === undefined ? "other JSON" : `the format ${shown(format)}`);
  }
  if (version !== PROFILE_VERSION) {
    throw new RangeError(
      `${CANNOT}: its version must be ${PROFILE_VERSION}, received ${shown(version)}; ` +
        `troupe profile --out FILE measures a new one`,
    );
  }
  const twice = repeatedKey(text);
  if (twice !== undefined) throw strange(`one that has ${shown(twice)} twice`);
  aProfile(`${CANNOT}:`, value);
  return value as unknown as Profile;
}

/**
 * Reads the file of a profile.
 *
 * @throws {TypeError} when it is no file, or larger than any profile; as {@linkcode parseProfile}.
 * @throws {Deno.errors.NotFound} when there is no such file.
 */
export function readProfile(path: string): Profile {
  checkInputFile(path, PROFILE_BYTES_MAX);
  try {
    return parseProfile(decodeText(Deno.readFileSync(path), inOneLine(path)));
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof Error && message.startsWith(CANNOT)) {
      error.message = `Cannot read ${inOneLine(path)}${message.slice(CANNOT.length)}`;
    }
    throw error;
  }
}

function valueOf(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw strange(`no whole JSON: ${inOneLine((cause as Error).message)}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Record<string, unknown>;
  }
  throw strange("other JSON");
}

/** A value of the file, short and in one line. */
const shown = (value: unknown) => inOneLine((JSON.stringify(value) ?? "none").slice(0, 100));

const strange = (received: string) =>
  new SyntaxError(
    `${CANNOT}: it must be a profile that troupe profile --out has written, received ${received}`,
  );
