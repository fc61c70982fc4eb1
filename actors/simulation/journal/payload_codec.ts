/**
 * Messages as JSON, bit for bit: what JSON cannot say is wrapped in a record with one key, `$`. What
 * is rare in messages (dates, objects in themselves, arrays with holes …) is wrapped as the bytes that
 * it travels in between processes, so whatever can be sent can be kept.
 *
 * @module
 */

import { VIEWS } from "../../runtime/transports/codec/value_format.ts";
import { readValue } from "../../runtime/transports/codec/value_reader.ts";
import { writeValue } from "../../runtime/transports/codec/value_writer.ts";

/** Kinds of typed arrays that a message may hold, by name. */
const ARRAYS = new Map(
  VIEWS.flatMap((View) => View === DataView ? [] : [[View.name, View] as const]),
);

/** An object is in itself. */
const CYCLE = Symbol("cycle");

/**
 * A message as a value that JSON can say.
 *
 * @throws {TypeError} when it holds what cannot be sent to another process either.
 */
export function encodePayload(value: unknown): unknown {
  try {
    return encode(value, []);
  } catch (error) {
    if (error !== CYCLE) throw error;
    return encodeClone(value as object);
  }
}

/** @param around the objects that the value is in. */
function encode(value: unknown, around: readonly object[]): unknown {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      // JSON turns these into 0 and null.
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
    const isPlain = Object.keys(value).every((key, index) => key === `${index}`) &&
      value.length === Object.keys(value).length;
    return isPlain ? value.map((item) => encode(item, within)) : encodeClone(value);
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype === Object.prototype || prototype === null) {
    const entries = Object.entries(value).map(([key, item]) => [key, encode(item, within)]);
    // A record that looks like a wrapper is wrapped itself.
    return "$" in value ? { $: ["record", entries] } : Object.fromEntries(entries);
  }
  if (ArrayBuffer.isView(value) && ARRAYS.has(value.constructor.name)) {
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
  return new TypeError(`Cannot keep a message: all in it must be cloneable, received ${kind}`);
}

/** The message that {@linkcode encodePayload} wrote down. @throws {SyntaxError} when it is none. */
export function decodePayload(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(decodePayload);
  if (!("$" in value)) {
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, decodePayload(item)]),
    );
  }
  const [kind, first, second, third] = value.$ as [string, string, string, string];
  switch (kind) {
    case "number":
      return Number(first);
    case "undefined":
      return undefined;
    case "bigint":
      return BigInt(first);
    case "record":
      return Object.fromEntries(
        (first as unknown as [string, unknown][]).map(([key, item]) => [key, decodePayload(item)]),
      );
    case "ArrayBuffer":
      return Uint8Array.fromBase64(first).buffer;
    case "SharedArrayBuffer": {
      const bytes = Uint8Array.fromBase64(first), shared = new SharedArrayBuffer(bytes.length);
      new Uint8Array(shared).set(bytes);
      return shared;
    }
    case "clone": {
      const copies = (second as unknown as string[]).map((one) =>
        Uint8Array.fromBase64(one).buffer
      );
      return readValue(Uint8Array.fromBase64(first), copies);
    }
    case "Map":
      return new Map(decodePayload(first) as [unknown, unknown][]);
    case "Set":
      return new Set(decodePayload(first) as unknown[]);
    case "Error":
      return Object.assign(new Error(second), { name: first, stack: third });
  }
  const View = ARRAYS.get(kind) as Uint8ArrayConstructor | undefined;
  if (!View) {
    throw new SyntaxError(`Cannot read a message: its kind must be known, received ${kind}`);
  }
  return new View(Uint8Array.fromBase64(first).buffer);
}
