/**
 * How a value stands in bytes: a tag, then what it needs. Lengths and places are varints (seven bits
 * a byte, the lowest first); an object that comes again is a reference to its first time.
 *
 * @module
 */

/** What comes next. */
export const TAG = {
  undefined: 0,
  null: 1,
  false: 2,
  true: 3,
  /** A whole number of 32 bits, zigzag. */
  integer: 4,
  number: 5,
  string: 6,
  bigint: 7,
  /** The n-th object of this value. */
  again: 8,
  record: 9,
  array: 10,
  /** An array with holes or names of its own: its length and its entries. */
  sparseArray: 11,
  map: 12,
  set: 13,
  buffer: 14,
  /** A buffer beside the bytes, by its number. */
  buffered: 15,
  resizableBuffer: 16,
  view: 17,
  date: 18,
  regexp: 19,
  error: 20,
  /** A number, string, boolean or bigint as an object. */
  boxed: 21,
} as const;

/** Kinds of views, by their number in the bytes. */
export const VIEWS = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float16Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
  DataView,
] as const;

/** Errors that keep their class, by their number in the bytes. */
export const ERRORS = [
  Error,
  EvalError,
  RangeError,
  ReferenceError,
  SyntaxError,
  TypeError,
  URIError,
] as const;

/** What an error has of its own, as bits. */
export const ERROR_PARTS = { message: 1, stack: 2, cause: 4 } as const;
