/**
 * What values must be, for options that plain JavaScript gives: kinds, ranges, names and slips of
 * the pen.
 *
 * @module
 */

import { didYouMean } from "./did_you_mean.ts";
import { whatWasMeant } from "./other_words.ts";

/** Checks a value; `what` says in the refusal which one it is. Values that are not given pass. */
export type Must = (what: string, value: unknown) => void;

/** A value as a refusal shows it: short, and in one line. */
function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 100));
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "function") return "a function";
  if (typeof value === "object" && value !== null) return "an object";
  return typeof value === "bigint" ? `the bigint ${value}` : String(value);
}

function must(
  what: string,
  wanted: string,
  value: unknown,
  Kind: typeof TypeError | typeof RangeError = TypeError,
): never {
  throw new Kind(`${what} must be ${wanted}, received ${shown(value)}`);
}

/** A check of values that are given. */
const given = (check: Must): Must => (what, value) => {
  if (value !== undefined) check(what, value);
};

/** Something that must be given. */
export const required = (check: Must): Must => (what, value) => {
  if (value === undefined) must(subject(what), "given", value);
  check(what, value);
};

const ofType = (type: string, wanted: string): Must =>
  given((what, value) => typeof value === type || must(what, wanted, value));

/** `true` or `false`. */
export const aBoolean: Must = ofType("boolean", "true or false");

/** A function. */
export const aFunction: Must = ofType("function", "a function");

/** A string that is not empty. */
export const aText: Must = given((what, value) => {
  if (typeof value !== "string" || value === "") must(what, "a string that is not empty", value);
});

/** A number for which `holds` is true; never NaN. */
export const aNumber = (wanted: string, holds: (value: number) => boolean): Must =>
  given((what, value) => {
    if (typeof value !== "number") must(what, wanted, value);
    if (!holds(value as number)) must(what, wanted, value, RangeError);
  });

/** A number from 0, and no infinite one. */
export const fromZero: Must = aNumber(
  "a number from 0",
  (value) => value >= 0 && value < Infinity,
);

/** A whole number from `minimum` to `maximum`. */
export const anInteger = (minimum: number, maximum = Number.MAX_SAFE_INTEGER): Must => {
  const wanted = minimum === 1
    ? "a positive integer"
    : minimum === Number.MIN_SAFE_INTEGER
    ? "a whole number"
    : `an integer from ${minimum}`;
  const whole = aNumber(wanted, (value) => Number.isSafeInteger(value) && value >= minimum);
  const small = aNumber(`at most ${maximum}`, (value) => value <= maximum);
  return (what, value) => {
    whole(what, value);
    small(what, value);
  };
};

/** An object of a class, or of one that does what it does. */
export const anInstance = (wanted: string, isIt: (value: object) => boolean): Must =>
  given((what, value) => {
    if (typeof value !== "object" || value === null || !isIt(value)) must(what, wanted, value);
  });

/** One of some strings. */
export const oneOf = (...names: readonly string[]): Must =>
  given((what, value) => {
    if (names.includes(value as string)) return;
    const wanted = `one of ${names.join(", ")}`;
    if (typeof value !== "string") must(what, wanted, value);
    const meant = didYouMean(value as string, names);
    throw new RangeError(`${what} must be ${wanted}, received ${shown(value)}${meant}`);
  });

/** One of two, by whether the value is of a type. */
export const either =
  (type: "number" | "string" | "function", one: Must, other: Must): Must => (what, value) => {
    const its: string = typeof value;
    (its === type ? one : other)(what, value);
  };

/** An array of such values. */
export const anArray = (of: Must, minimum = 0): Must =>
  given((what, value) => {
    const wanted = minimum === 0 ? "an array" : `an array of ${minimum} or more`;
    if (!Array.isArray(value)) must(what, wanted, value);
    const values = value as readonly unknown[];
    if (values.length < minimum) must(what, wanted, value, RangeError);
    for (let i = 0; i < values.length; i++) required(of)(`${what}[${i}]`, values[i]);
  });

/** A check whose refusal says what other libraries mean by a word. */
export const inOtherWords =
  (words: Readonly<Record<string, string>>, check: Must): Must => (what, value) => {
    const meant = whatWasMeant(value, words);
    try {
      check(what, value);
    } catch (error) {
      if (meant === "") throw error;
      const Kind = error instanceof RangeError ? RangeError : TypeError;
      throw new Kind((error as Error).message.replace(/(; did you mean .*)?$/, meant));
    }
  };

/**
 * A record of options: none that is not known, each as it must be.
 *
 * `what` is `Cannot do it:` for all options together, and `Cannot do it: name` for a record in them.
 *
 * @param isOpen whether it may have others as well.
 * @param words what other libraries mean by names that it does not know.
 */
export const aRecord = (
  fields: Readonly<Record<string, Must>>,
  isOpen = false,
  words: Readonly<Record<string, string>> = {},
): Must =>
  given((what, value) => {
    if (typeof value !== "object" || value === null) must(subject(what), "an object", value);
    const names = Object.keys(fields), [cannot, at] = what.split(/: ?/, 2) as [string, string];
    for (const name of isOpen ? [] : Object.keys(value as object)) {
      if (names.includes(name)) continue;
      const meant = whatWasMeant(name, words) || didYouMean(name, names) ||
        `; known are ${names.join(", ")}`;
      const which = at === "" ? "every option" : `every option of ${at}`;
      throw new TypeError(`${cannot}: ${which} must be known, received ${shown(name)}${meant}`);
    }
    for (const [name, check] of Object.entries(fields)) {
      const inner = at === "" ? name : `${at}.${name}`;
      check(`${cannot}: ${inner}`, (value as Record<string, unknown>)[name]);
    }
  });

/** All options together have no name of their own. */
const subject = (what: string) => what.endsWith(":") ? `${what} the options` : what;
