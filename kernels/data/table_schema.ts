/**
 * The schema of a table, which says which columns are a field of micro-batches.
 *
 * @module
 */

import { assertInput } from "../errors.ts";

/** Fields of micro-batches by name, each from columns of a table. */
export type TableSchema = {
  readonly [field: string]:
    /** Numbers of some columns, f32. */
    | { readonly numbers: readonly string[] }
    /** The class of a text, i32. Default of `classes`: the different texts, sorted. */
    | { readonly category: string; readonly classes?: readonly string[] }
    /** Ids of a text, i32: the first `length`; if there are fewer, −1 follows (no loss). */
    | {
      readonly text: string;
      readonly encode: (text: string) => ArrayLike<number>;
      readonly length: number;
    }
    /**
     * Values of PNG or JPEG images, f32, channel after channel (1 grey, 3 colours, or 4 with alpha):
     * paths of files, or their bytes. They are from 0 to 1, less the `mean` of their channel (default
     * 0), divided by its `std` (default 1).
     */
    | {
      readonly image: string;
      readonly size: readonly [channels: number, height: number, width: number];
      readonly mean?: readonly number[];
      readonly std?: readonly number[];
    };
};

type TableField = TableSchema[string];

/** Names in each kind of field; the first one has the columns. */
const FIELDS = ["numbers", "category classes", "text encode length", "image size mean std"]
  .map((names) => names.split(" "));

/** Throws unless each field of a schema is of one kind, with columns. */
export function checkSchema(schema: TableSchema): void {
  const fields = Object.entries(Object(schema) as TableSchema);
  assertInput(fields.length > 0, "read a table", "the schema must have at least one field", "none");
  for (const [name, field] of fields as [string, unknown][]) {
    const cannot = `read the field ${name}`, names = Object.keys(Object(field));
    const known = FIELDS.find(([kind]) => names.includes(kind!)) ?? [], kind = known[0]!;
    const must = `it must have the names ${FIELDS.map((one) => one.join(", ")).join("; or ")}`;
    const isKnown = kind !== undefined && names.every((one) => known.includes(one));
    assertInput(isKnown, cannot, must, typeof field === "object" ? names.join(", ") : field);
    const { [kind]: given, classes = [], encode } = field as Record<string, unknown>;
    const columns = [given].flat(), isList = Array.isArray(given) && columns.length > 0;
    const isNamed = columns.every((one) => typeof one === "string") &&
      (kind === "numbers" ? isList : !Array.isArray(given));
    const what = kind === "numbers" ? "a list of names of columns" : "the name of a column";
    assertInput(isNamed, cannot, `${kind} must be ${what}`, JSON.stringify(given), TypeError);
    const isOnce = Array.isArray(classes) && new Set(classes).size === classes.length;
    assertInput(isOnce, cannot, "classes must be a list of different texts", classes);
    const isText = kind !== "text" || typeof encode === "function";
    assertInput(isText, cannot, "encode must be a function", typeof encode, TypeError);
  }
}

/** Returns the names of the columns of a field. */
export const columnsOf = (field: TableField): readonly string[] =>
  "numbers" in field
    ? field.numbers
    : ["category" in field ? field.category : "image" in field ? field.image : field.text];
