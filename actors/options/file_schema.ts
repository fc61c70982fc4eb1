/**
 * Schemas of data in JSON files, which may come from an untrusted source.
 *
 * The message of each schema is its requirement ("a text of at most 10 characters"), from which
 * {@linkcode checkData} makes the sentence of a refusal.
 *
 * @module
 */

import * as v from "valibot";
import { inOneLine } from "../runtime/types.ts";
import { pathOf, shown, suggest } from "./option.ts";

/** A text of at most `max` characters. */
export const text = (max: number) =>
  v.pipe(v.string("a text"), v.maxLength(max, `a text of at most ${max} characters`));

/** A number for which `holds` is true. */
export const numberWhere = (must: string, holds: (value: number) => boolean) =>
  v.pipe(v.number(must), v.check(holds, must));

/** An integer within bounds. */
export const integer = (min: number, max: number = Number.MAX_SAFE_INTEGER) =>
  numberWhere(
    max < Number.MAX_SAFE_INTEGER ? `an integer from ${min} to ${max}` : `an integer from ${min}`,
    (value) => Number.isSafeInteger(value) && min <= value && value <= max,
  );

/** One of some texts. */
export const oneOf = <const T extends readonly string[]>(texts: T) =>
  v.picklist(texts, `${ONE_OF}${texts.join(", ")}`);

const ONE_OF = "one of ";

/** An array, whose length is checked before its entries. */
export const arrayOf = <T extends v.GenericSchema>(entry: T, min: number, max: number) => {
  const must = `an array of ${min} to ${max} entries`;
  return v.pipe(
    v.array(v.unknown(), must),
    v.check(({ length }) => min <= length && length <= max, must),
    v.array(entry),
  );
};

/** Returns whether a value is a JSON object. */
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const object = v.custom<Readonly<Record<string, unknown>>>(isObject, "an object");

/** The schema of an object, of which the type shows only these fields. */
type FieldsSchema<T extends v.ObjectEntries> = v.GenericSchema<
  v.InferOutput<v.ObjectSchema<T, undefined>>
>;

/** The type of the values that fit a schema. */
export type Checked<S extends v.GenericSchema> = Unchanged<v.InferOutput<S>>;

type Unchanged<T> = T extends object ? { readonly [K in keyof T]: Unchanged<T[K]> } : T;

/** An object with these fields, and maybe others. */
export const objectOf = <T extends v.ObjectEntries>(fields: T) =>
  v.pipe(object, v.looseObject(fields, "given")) as FieldsSchema<T>;

/** An object without other fields; a misspelled name is reported before a missing field. */
export const exactObject = <T extends v.ObjectEntries>(fields: T) =>
  v.pipe(
    object,
    v.rawCheck(({ dataset: { value: input }, addIssue }) => {
      const key = Object.keys(input as object).find((name) => !Object.hasOwn(fields, name));
      const message = ONE_OF + Object.keys(fields).join(", ");
      if (key !== undefined) addIssue({ message, input: key });
    }),
    objectOf(fields),
  );

/** An object with entries of any name. */
export const entriesOf = <T extends v.GenericSchema>(entry: T, nameMax: number, max: number) =>
  v.pipe(
    object,
    v.check((value) => Object.keys(value).length <= max, `an object of at most ${max} entries`),
    v.record(text(nameMax), entry),
  );

/** Names a value in an error, on one line. */
export const describeValue = (value: unknown): string =>
  value === undefined ? "nothing" : inOneLine(shown(value));

/**
 * Checks data.
 *
 * @param cannot the start of the error, such as `Cannot read a.json`.
 * @param at the name of the data within its file, such as `actors.counter`.
 * @param Kind the class of the error. Default: TypeError for another type, RangeError for another value.
 * @returns the data without fields of names such as `__proto__`.
 * @throws {TypeError} {@linkcode RangeError} naming the first field that fails its check.
 */
export function checkData<S extends v.GenericSchema>(
  cannot: string,
  schema: S,
  data: unknown,
  { at = "", Kind }: { readonly at?: string; readonly Kind?: typeof SyntaxError } = {},
): Checked<S> {
  const { success, output, issues } = v.safeParse(schema, data, { abortEarly: true });
  if (success) return output as Checked<S>;
  const [{ kind, type, message, input, path = [] }] = issues;
  const field = inOneLine(pathOf(at, path.map(({ key }) => key)));
  const isText = message.startsWith(ONE_OF) && typeof input === "string";
  const meant = isText ? suggest(input, message.slice(ONE_OF.length).split(", ")) : "";
  const Default = kind === "schema" && !isText ? TypeError : RangeError;
  const what = type === "raw_check" ? `every key${field && " of "}` : field ? "" : "it";
  const received = describeValue(input) + meant;
  throw new (Kind ?? Default)(
    `${cannot}: ${what}${field} must be ${message}, received ${received}`,
  );
}

/** Largest number of characters shown of a value. */
const SHOWN_MAX = 200;

/**
 * Quotes a value on one line, and shortens a long one.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(quoted("runs\nmine"), '"runs\\nmine"');
 * assert.equal(quoted("x".repeat(1000)).length, 203);
 * ```
 */
export function quoted(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "nothing";
  return `"${inOneLine(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text)}"`;
}
