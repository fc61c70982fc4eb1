/**
 * Schemas of values from outside, and the table of options that checks them, fills in defaults and
 * declares the flags of the command.
 *
 * @module
 */

import * as v from "valibot";
import { inOneLine } from "../runtime/types.ts";

/** A schema. The message of an issue follows the name of the value: `must be …, received …`. */
export type Schema<T = unknown> = v.GenericSchema<T>;

/** An option: its check, its default, other names for it, and its flag. */
export interface Option<T> {
  /** Check of the value; it also gives the kind, the choices and the bounds of the flag. */
  readonly schema: Schema<T>;
  /** True if the option must be given. */
  readonly isRequired?: true;
  /** Default, of the flag too unless it has another. */
  readonly default?: T;
  /** Its names in other libraries, separated by spaces, or such names with their meaning here. */
  readonly synonyms?: string | Words;
  /** Values in other libraries, with their meaning here. */
  readonly words?: Words;
  /** True if a resumed run takes the value from its checkpoint. Default: it is given again. */
  readonly isInherited?: true;
  /** The flag of the command. */
  readonly flag?: OptionFlag;
  /** Options of which the value is a record, where these have flags. */
  readonly fields?: Readonly<Record<string, Option<unknown>>>;
}

/** The options of an interface, each by its name. */
export type OptionTable<O> = {
  readonly [K in keyof Required<O>]: Option<Exclude<O[K], undefined>>;
};

/** A table of any options. */
export type Options = Readonly<Record<string, Option<unknown>>>;

/** Another name of a flag, or a switch that means one of its values: `fp16` for a precision. */
export type FlagAlias = string | { readonly name: string; readonly means: string };

/** Description of a flag, for the parser, help, completion and configuration files. */
export interface FlagText {
  /** Placeholder of the value in the help. Default: the choices, `FILE`, `NAME` or `N`. */
  readonly value?: string;
  /** Short description of the flag. */
  readonly help: string;
  /** Other names: a letter (`h`), or the names of the same setting in other programs. */
  readonly aliases?: readonly FlagAlias[];
  /** Its name in earlier versions, which is still read. */
  readonly formerly?: string;
  /** Values of a choice; with `read` the usual ones; components that come with Troupe. */
  readonly choices?: readonly string[];
  /** Reads the text of a value; undefined if it is invalid. */
  readonly read?: (text: string) => unknown;
  /** The requirement of `read`, for messages. */
  readonly must?: string;
  /** Lowest value of a number. Default: 1 of an integer, 0 of other numbers. */
  readonly minimum?: number;
  /** Highest value of a number. Default: 2^31 - 1 of an integer. */
  readonly maximum?: number;
  /** A number must be below this. */
  readonly below?: number;
  /** Default of the flag. */
  readonly default?: number | string;
  /** Describes the default where it is not a value. */
  readonly otherwise?: string;
}

/** The flag of an option. Omitted fields follow from the option's schema and default. */
export interface OptionFlag extends FlagText {
  /** The name, without the dashes before it. Default: that of the option, as `flagName` returns it. */
  readonly name?: string;
  /** True if the value is a path, which a file may not set. */
  readonly isPath?: true;
  /** Kind of the flag, where it is not that of the schema. */
  readonly kind?: SchemaFacts["kind"];
  /** Factor from the flag's value to the option's. */
  readonly factor?: number;
}

/** Returns the name of an option's flag: `drop-last` of `dropLast`, unless the flag has another. */
export const flagName = (option: string, { name }: OptionFlag): string =>
  name ?? option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** Facts about a schema that its flag uses. */
type SchemaFacts = Pick<FlagText, "choices" | "minimum" | "maximum" | "below"> & {
  readonly kind?: "integer" | "number" | "text" | "choice" | "switch";
};

/** Returns the kind, choices and bounds of a schema. */
export const factsOf = (schema: Schema): SchemaFacts => v.getMetadata(schema as never);

/** A value as messages show it: short, and on one line. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 100));
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "function") return "a function";
  if (typeof value === "object" && value !== null) return "an object";
  return typeof value === "bigint" ? `the bigint ${value}` : String(value);
}

const must = (wanted: string) => ({ input }: { readonly input: unknown }): string =>
  `must be ${wanted}, received ${shown(input)}`;

/** A value of a kind; others are a `TypeError`. */
export const ofKind = <T>(
  wanted: string,
  isIt: (value: unknown) => boolean,
  facts: SchemaFacts = {},
): Schema<T> => v.pipe(v.custom<T>(isIt, must(wanted)), v.metadata({ ...facts }));

/** An object for which `isIt` is true. */
export const objectOf = <T = object>(wanted: string, isIt: (value: object) => boolean): Schema<T> =>
  ofKind(wanted, (value) => typeof value === "object" && value !== null && isIt(value));

/** `true` or `false`. */
export const trueOrFalse: Schema<boolean> = ofKind(
  "true or false",
  (value) => typeof value === "boolean",
  { kind: "switch" },
);

/** A function. */
export const callback: Schema<never> = ofKind("a function", (value) => typeof value === "function");

/** A string that is not empty. */
export const text: Schema<string> = ofKind(
  "a string that is not empty",
  (value) => typeof value === "string" && value !== "",
  { kind: "text" },
);

/** Any value. */
export const anything: Schema<never> = v.custom<never>(() => true);

/** A number for which `holds` is true. */
export const number = (
  wanted: string,
  holds: (value: number) => boolean,
  facts: SchemaFacts = {},
): Schema<number> =>
  v.pipe(
    v.custom<number>((value) => typeof value === "number", must(wanted)),
    v.check(holds, must(wanted)),
    v.metadata({ kind: "number", ...facts }),
  );

/** A finite number from 0. */
export const fromZero: Schema<number> = number(
  "a number from 0",
  (value) => value >= 0 && value < Infinity,
);

/** A whole number from `minimum` to `maximum`. */
export function integer(minimum: number, maximum = Number.MAX_SAFE_INTEGER): Schema<number> {
  const wanted = minimum === 1
    ? "a positive integer"
    : minimum === Number.MIN_SAFE_INTEGER
    ? "a whole number"
    : `an integer from ${minimum}`;
  return v.pipe(
    number(wanted, (value) => Number.isSafeInteger(value) && value >= minimum),
    v.maxValue(maximum, must(`at most ${maximum}`)),
    v.metadata({ kind: "integer", minimum, maximum }),
  );
}

/** One of some strings. */
export const oneOf = <const T extends string>(...names: readonly T[]): Schema<T> =>
  v.pipe(
    v.picklist(names, ({ input }) => {
      const meant = typeof input === "string" ? suggest(input, names) : "";
      return must(`one of ${names.join(", ")}`)({ input }) + meant;
    }),
    v.metadata({ kind: "choice", choices: names }),
  );

/** Chooses the schema of a value by the value. */
export const byValue = <T>(choose: (value: unknown) => Schema<T>): Schema<T> => v.lazy(choose);

/** Chooses the schema of a value by its type. */
export const byType = <A, B>(
  type: "number" | "string" | "function",
  one: Schema<A>,
  other: Schema<B>,
): Schema<A | B> =>
  byValue<A | B>((value) => {
    const kind = typeof value;
    return kind === type ? one : other;
  });

/** An array of `minimum` to `maximum` values. */
export function listOf<T>(of: Schema<T>, minimum = 0, maximum = Infinity): Schema<T[]> {
  const wanted = must(minimum === 0 ? "an array" : `an array of ${minimum} or more`);
  return v.pipe(
    v.custom<T[]>(Array.isArray, wanted),
    v.check((values: T[]) => values.length >= minimum, wanted),
    v.maxLength(maximum, must(`an array of at most ${maximum}`)),
    v.array(of),
  );
}

type OptionalKeys<T> = { [K in keyof T]-?: undefined extends T[K] ? K : never }[keyof T];

type Fields<T> = { readonly [K in keyof T]-?: Schema<Exclude<T[K], undefined>> };

/**
 * A record with fields that must be given, and fields that may be left out.
 *
 * @param isOpen True if other fields are allowed.
 * @param words Meanings of unknown field names in other libraries.
 */
export function record<T>(
  required: Partial<Fields<Omit<T, OptionalKeys<T>>>>,
  optional: Partial<Fields<Pick<T, OptionalKeys<T>>>> = {},
  { isOpen = false, words = {} }: { readonly isOpen?: boolean; readonly words?: Words } = {},
): Schema<T> {
  const fields = { ...required as Record<string, Schema> };
  for (const [name, schema] of Object.entries(optional)) {
    fields[name] = v.optional(schema as Schema);
  }
  const names = Object.keys(fields);
  const message = ({ expected, input }: Pick<v.BaseIssue<unknown>, "expected" | "input">) =>
    expected === UNKNOWN
      ? findSynonym(input, words) || suggest(String(input), names) ||
        `; known are ${names.join(", ")}`
      : must("an object")({ input });
  const schema: Schema = isOpen ? v.object(fields, message) : v.strictObject(fields, message);
  return schema as Schema<T>;
}

/** The record of the options of a table. */
export function recordOf<T>(table: OptionTable<T>, words: Words = {}): Schema<T> {
  const options = Object.entries(table as Options);
  const schemasOf = (isRequired: boolean) =>
    Object.fromEntries(
      options.filter(([, option]) => isRequired === (option.isRequired ?? false))
        .map(([name, { schema }]) => [name, schema]),
    );
  const synonyms = options.map(([name, { synonyms }]) =>
    typeof synonyms === "string" ? meaning(`${name} was meant`, synonyms) : synonyms
  );
  const known = Object.assign({}, words, ...synonyms) as Words;
  return record<T>(schemasOf(true) as never, schemasOf(false) as never, { words: known });
}

/** Valibot's expected value of an unknown field. */
const UNKNOWN = "never";

/** Place of a checked value, for messages. */
interface CheckedPlace {
  /** Start of the error message: `Cannot train`. */
  readonly cannot: string;
  /** Name of the value. Default: the names of its fields are enough. */
  readonly name?: string;
  /** Options of which the value is a record. */
  readonly table?: Options;
}

/**
 * Checks a value from outside.
 *
 * @throws {TypeError} when a field is unknown, missing or of another type.
 * @throws {RangeError} when a value is out of its range.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const link = record({ bytes: integer(1) }, { kind: oneOf("fast", "slow") });
 * check(link, { bytes: 1 }, { cannot: "Cannot send" });
 * assert.throws(() => check(link, { bytes: 0 }, { cannot: "Cannot send" }), {
 *   name: "RangeError",
 *   message: "Cannot send: bytes must be a positive integer, received 0",
 * });
 * ```
 */
export function check(schema: Schema, value: unknown, { cannot, name, table }: CheckedPlace): void {
  const { issues = [] } = v.safeParse(schema, value, { abortPipeEarly: true });
  const issue = issues.find(({ expected }) => expected === UNKNOWN) ?? issues[0];
  if (issue === undefined) return;
  const { input, kind, type, path = [] } = issue, keys = path.map(({ key }) => key);
  if (issue.expected === UNKNOWN) {
    const of = pathOf(name, keys.slice(0, -1)), each = of === "" ? "" : ` of ${of}`;
    throw new TypeError(
      `${cannot}: every option${each} must be known, received ${shown(input)}${issue.message}`,
    );
  }
  const at = `${cannot}: ${pathOf(name, keys) || "the options"}`;
  if (input === undefined) throw new TypeError(`${at} must be given, received undefined`);
  const { words = {} } = keys.length === 1 ? table?.[String(keys[0])] ?? {} : {};
  const meant = findSynonym(input, words);
  const message = meant ? issue.message.replace(/(; did you mean .*)?$/, meant) : issue.message;
  const isOutOfRange = kind === "validation" || type === "picklist" && typeof input === "string";
  throw new (isOutOfRange ? RangeError : TypeError)(`${at} ${message}`);
}

/** Returns the path of a value within another, such as `faults[0].kind`, on one line. */
export const pathOf = (name = "", keys: readonly unknown[]): string =>
  keys.reduce<string>(
    (path, key) =>
      typeof key === "number" ? `${path}[${key}]` : inOneLine(path ? `${path}.${key}` : `${key}`),
    name,
  );

/** The names of the options of a table that have a default. */
type Defaulted<T> = {
  [K in keyof T]: T[K] extends { readonly default: unknown } ? K : never;
}[keyof T];

/** Options with the defaults of their table. */
export type Filled<O, T> =
  & O
  & { readonly [K in Defaulted<T> & keyof O]-?: Exclude<O[K], undefined> };

/** Fills in the defaults of options that are not given. */
export function fillIn<O extends object, T extends Options>(table: T, given: O): Filled<O, T> {
  const defaults = Object.entries(table).map(([name, option]) => [name, option.default]);
  const all = [...defaults, ...Object.entries(given)].filter(([, value]) => value !== undefined);
  return Object.fromEntries(all);
}

/** Meanings of words in other libraries, by the word without `_`, `-` and case. */
export type Words = Readonly<Record<string, string>>;

/** The meaning of some words, separated by spaces. */
export function meaning(meant: string, words: string): Words {
  return Object.fromEntries(words.split(" ").map((word) => [plainWord(word), meant]));
}

/**
 * Returns the meaning of a word as the end of a sentence; empty if it is unknown.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const words = meaning("clip was meant", "gradClip maxGradNorm");
 * assert.equal(findSynonym("max_grad_norm", words), "; clip was meant");
 * assert.equal(findSynonym("flavour", words), "");
 * ```
 */
export function findSynonym(word: unknown, words: Words): string {
  const key = typeof word === "string" ? plainWord(word) : "";
  return Object.hasOwn(words, key) ? `; ${words[key]}` : "";
}

const plainWord = (word: string): string => word.slice(0, 100).replace(/[-_ ]/g, "").toLowerCase();

/** Returns the name that was probably meant as the end of a sentence; empty if none is similar. */
export function suggest(text: string, names: readonly string[]): string {
  const near = names.map((name) => ({ name, distance: distance(text, name) }))
    .filter(({ name, distance }) => distance <= Math.max(2, name.length / 3))
    .sort((a, b) => a.distance - b.distance)[0];
  return near ? `; did you mean ${near.name}?` : "";
}

/** Returns the edit distance (Levenshtein) of two words, ignoring case. */
function distance(one: string, other: string): number {
  const a = one.toLowerCase().slice(0, 100), b = other.toLowerCase();
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}

/** The place of snapshots. */
export type SnapshotPlace = "memory" | "disk";
