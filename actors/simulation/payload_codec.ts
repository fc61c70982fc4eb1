/**
 * Messages as JSON, bit for bit: what JSON cannot say is wrapped in a record with one key, `$`.
 *
 * @module
 */

/** Kinds of typed arrays that a message may hold. */
const VIEWS = {
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
} as const;

type ViewName = keyof typeof VIEWS;

/**
 * A message as a value that JSON can say.
 *
 * @throws {TypeError} when it holds what a journal cannot keep.
 */
export function encodePayload(value: unknown): unknown {
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
      return value === null ? null : encodeObject(value);
    default:
      throw unknownKind(typeof value);
  }
}

function encodeObject(value: object): unknown {
  if (Array.isArray(value)) return Array.from(value, encodePayload);
  const prototype = Object.getPrototypeOf(value);
  if (prototype === Object.prototype || prototype === null) {
    const entries = Object.entries(value).map(([key, item]) => [key, encodePayload(item)]);
    // A record that looks like a wrapper is wrapped itself.
    return "$" in value ? { $: ["record", entries] } : Object.fromEntries(entries);
  }
  if (ArrayBuffer.isView(value)) {
    const { buffer, byteOffset, byteLength, constructor: { name } } = value;
    if (!(name in VIEWS)) throw unknownKind(name);
    return { $: [name, new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength).toBase64()] };
  }
  if (value instanceof ArrayBuffer) return { $: ["ArrayBuffer", new Uint8Array(value).toBase64()] };
  if (value instanceof Map) return { $: ["Map", encodePayload([...value])] };
  if (value instanceof Set) return { $: ["Set", encodePayload([...value])] };
  if (value instanceof Error) {
    return { $: ["Error", value.name, value.message, value.stack ?? ""] };
  }
  throw unknownKind(value.constructor?.name ?? "an object");
}

function unknownKind(kind: string): TypeError {
  return new TypeError(
    `Cannot keep a message: it must hold plain data, typed arrays, maps and sets, received ${kind}`,
  );
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
    case "Map":
      return new Map(decodePayload(first) as [unknown, unknown][]);
    case "Set":
      return new Set(decodePayload(first) as unknown[]);
    case "Error":
      return Object.assign(new Error(second), { name: first, stack: third });
  }
  if (!(kind in VIEWS)) {
    throw new SyntaxError(`Cannot read a message: its kind must be known, received ${kind}`);
  }
  return new VIEWS[kind as ViewName](Uint8Array.fromBase64(first).buffer as ArrayBuffer);
}
