/**
 * Exact encoding of messages as JSON. Values without a JSON form are wrapped in a record with one key,
 * `$`. Rare values (dates, cyclic objects, arrays with holes …) are wrapped in the encoding that is sent
 * between processes, so every message that can be sent can be kept.
 *
 * @module
 */

import { readValue, VIEWS, writeValue } from "../transports/codec.ts";

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
