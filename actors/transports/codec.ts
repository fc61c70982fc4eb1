/**
 * Encodes frames as bytes: everything that structured clone accepts goes into one byte array, and
 * moved buffers stay separate. Both ends must have the same byte order.
 *
 * [Note: why not V8's serializer] `Serializer` and `Deserializer` of Deno's `node:v8` leak one to
 * three kilobytes of native memory per call, and are several times slower for small records.
 *
 * @module
 */

import { checkTransfer, isDense } from "../runtime/observer.ts";

/** Tags of values. */
const TAG = {
  undefined: 0,
  null: 1,
  false: 2,
  true: 3,
  /** A 32-bit integer, zigzag-encoded. */
  integer: 4,
  number: 5,
  string: 6,
  bigint: 7,
  /** A reference to the n-th object of this value. */
  again: 8,
  record: 9,
  array: 10,
  /** An array with holes or named properties: its length and its entries. */
  sparseArray: 11,
  map: 12,
  set: 13,
  buffer: 14,
  /** A separate buffer, by its number. */
  buffered: 15,
  resizableBuffer: 16,
  view: 17,
  date: 18,
  regexp: 19,
  error: 20,
  /** A boxed number, string, boolean or bigint. */
  boxed: 21,
} as const;

/** Types of views, by their number in the bytes. */
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

/** Error classes that are preserved, by their number in the bytes. */
const ERRORS = [
  Error,
  EvalError,
  RangeError,
  ReferenceError,
  SyntaxError,
  TypeError,
  URIError,
] as const;

/** Own properties of an error, as bits. */
const ERROR_PARTS = { message: 1, stack: 2, cause: 4 } as const;

/** Maximum characters per call of `String.fromCharCode`, which limits its arguments. */
const STRING_PART = 4096;

/**
 * Decodes a value. Allocates at most a fixed multiple of the length of `bytes`, even if they are
 * invalid.
 *
 * @param beside separate buffers that the value refers to by number; they become parts of it.
 * @param maxObjects maximum number of objects: an empty map takes two bytes here, and a hundred times
 * that in memory.
 * @throws {SyntaxError} when the bytes are not a value.
 * @throws {RangeError} when there are more objects.
 */
export function readValue(
  bytes: Uint8Array,
  beside: readonly ArrayBuffer[] = [],
  maxObjects = Infinity,
): unknown {
  const reader = new ValueReader(bytes, beside, maxObjects);
  const value = reader.value();
  if (reader.left > 0) throw unreadable(`${reader.left} bytes too many`);
  return value;
}

class ValueReader {
  readonly #objects: object[] = [];
  #at = 0;

  constructor(
    private readonly bytes: Uint8Array,
    private readonly beside: readonly ArrayBuffer[],
    private readonly maxObjects: number,
  ) {}

  get left(): number {
    return this.bytes.length - this.#at;
  }

  value(): unknown {
    const tag = this.#byte(), read = ValueReader.#READ[tag] ?? this.#fail(`the tag ${tag}`);
    return read(this);
  }

  /** Readers of the value after each tag. */
  static readonly #READ: Readonly<Record<number, (from: ValueReader) => unknown>> = {
    [TAG.undefined]: () => undefined,
    [TAG.null]: () => null,
    [TAG.false]: () => false,
    [TAG.true]: () => true,
    [TAG.integer](from) {
      const zigzag = from.#varint();
      return zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    },
    [TAG.number](from) {
      const part = from.#take(Float64Array.BYTES_PER_ELEMENT);
      return new DataView(part.buffer, part.byteOffset).getFloat64(0, true);
    },
    [TAG.string]: (from) => from.#string(),
    [TAG.bigint](from) {
      const text = from.#string();
      return text.startsWith("-") ? -BigInt(`0x${text.slice(1)}`) : BigInt(`0x${text}`);
    },
    [TAG.again]: (from) =>
      from.#objects[from.#varint()] ?? from.#fail("an object that did not come before"),
    [TAG.record]: (from) => from.#entries(from.#note({})),
    [TAG.array](from) {
      const array = from.#note(new Array(from.#count()));
      for (let index = 0; index < array.length; index++) array[index] = from.value();
      return array;
    },
    [TAG.sparseArray](from) {
      // V8 allocates no elements for this length, also when the length is reduced.
      const array = from.#note(new Array(2 ** 32 - 1));
      array.length = from.#varint();
      return from.#entries(array);
    },
    [TAG.map](from) {
      const map = from.#note(new Map());
      for (let rest = from.#count(); rest > 0; rest--) map.set(from.value(), from.value());
      return map;
    },
    [TAG.set](from) {
      const set = from.#note(new Set());
      for (let rest = from.#count(); rest > 0; rest--) set.add(from.value());
      return set;
    },
    [TAG.buffer]: (from) => from.#buffer(),
    [TAG.buffered]: (from) =>
      from.#note(from.beside[from.#varint()] ?? from.#fail("a buffer that did not come")),
    [TAG.resizableBuffer]: (from) => from.#buffer({ maxByteLength: from.#varint() }),
    [TAG.view](from) {
      const View =
        (VIEWS[from.#byte()] ?? from.#fail("a view of no kind")) as Uint8ArrayConstructor;
      const buffer = from.value();
      if (!(buffer instanceof ArrayBuffer)) return from.#fail("a view of no buffer");
      const offset = from.#varint(), bytes = from.#varint();
      // A DataView has no elements.
      const size = View.BYTES_PER_ELEMENT ?? 1;
      if (offset + bytes > buffer.byteLength || offset % size || bytes % size) {
        return from.#fail("a view beyond its buffer");
      }
      return from.#note(new View(buffer, offset, bytes / size));
    },
    [TAG.date]: (from) => from.#note(new Date(from.value() as number)),
    [TAG.regexp]: (from) => from.#note(new RegExp(from.#string(), from.#string())),
    [TAG.error](from) {
      const Kind = ERRORS[from.#byte()] ?? from.#fail("an error of no kind");
      const error = from.#note(new Kind()), parts = from.#byte();
      delete error.stack;
      for (const [part, bit] of Object.entries(ERROR_PARTS)) {
        if (!(parts & bit)) continue;
        const descriptor = { ...DATA_PROPERTY, enumerable: false, value: from.value() };
        Object.defineProperty(error, part, descriptor);
      }
      return error;
    },
    [TAG.boxed]: (from) => from.#note(Object(from.value())),
  };

  #note<T extends object>(value: T): T {
    if (this.#objects.push(value) <= this.maxObjects) return value;
    throw new RangeError(
      `Cannot read a value: it must have at most ${this.maxObjects} objects, received one more`,
    );
  }

  #entries<T extends object>(target: T): T {
    const record = target as Record<string, unknown>;
    for (let rest = this.#count(); rest > 0; rest--) {
      const key = this.#string();
      if (key !== "__proto__") record[key] = this.value();
      else Object.defineProperty(record, key, { ...DATA_PROPERTY, value: this.value() });
    }
    return target;
  }

  #buffer(options?: { maxByteLength: number }): ArrayBuffer {
    const part = this.#take(this.#varint());
    const buffer = this.#note(new ArrayBuffer(part.length, options));
    new Uint8Array(buffer).set(part);
    return buffer;
  }

  #string(): string {
    const head = this.#varint(), isWide = head % 2 === 1, length = (head - head % 2) / 2;
    if (!isWide && length <= STRING_PART) return latin(this.#take(length));
    let text = "";
    const part = this.#take(isWide ? 2 * length : length);
    for (let start = 0; start < part.length; start += STRING_PART) {
      const some = part.subarray(start, start + STRING_PART);
      text += isWide ? wide(some) : latin(some);
    }
    return text;
  }

  /** Reads the number of items, each of which takes at least one byte. */
  #count(): number {
    const count = this.#varint();
    return count <= this.left ? count : this.#fail(`${count} things in ${this.left} bytes`);
  }

  #varint(): number {
    let value = 0;
    for (let factor = 1;; factor *= 0x80) {
      const byte = this.#byte();
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
      if (!Number.isSafeInteger(value)) return this.#fail("a number that is too large");
    }
  }

  #take(count: number): Uint8Array {
    if (count > this.left) return this.#fail(`${count} bytes where ${this.left} are left`);
    return this.bytes.subarray(this.#at, this.#at += count);
  }

  #byte(): number {
    return this.bytes[this.#at++] ?? this.#fail("an early end");
  }

  #fail(what: string): never {
    throw unreadable(what);
  }
}

const DATA_PROPERTY = { writable: true, enumerable: true, configurable: true } as const;

function latin(bytes: Uint8Array): string {
  return String.fromCharCode.apply(null, bytes as unknown as number[]);
}

function wide(bytes: Uint8Array): string {
  const codes = Array.from(
    { length: bytes.length / 2 },
    (_, n) => bytes[2 * n]! + 256 * bytes[2 * n + 1]!,
  );
  return String.fromCharCode.apply(null, codes);
}

function unreadable(what: string): SyntaxError {
  return new SyntaxError(`Cannot read a value: its bytes must be whole, received ${what}`);
}

/** An encoded value and its separate buffers. */
interface WrittenValue {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Copies of large buffers; their numbers follow those of `beside`. */
  readonly copies: readonly ArrayBuffer[];
}

/** Buffers of at least this many bytes stay separate, so they are copied only once. */
const LARGE_BYTES = 4096;

/** Initial size of the write buffer; larger ones are not kept for reuse. */
const ROOM_BYTES = 65_536;

/** Maximum bytes of a varint: values are below 2^53. */
const VARINT_BYTES = 8;

/**
 * Write buffer for reuse; undefined while a writer uses it, because a getter may start another
 * writer.
 */
let spareRoom: Uint8Array<ArrayBuffer> | undefined;

/** Thrown for a value that only structured clone can copy or reject. */
const NOT_PLAIN = Symbol("not plain");

const VIEW_KINDS = new Map<object, number>(VIEWS.map(({ prototype }, kind) => [prototype, kind]));
const ERROR_KINDS = new Map<object, number>(ERRORS.map(({ prototype }, kind) => [prototype, kind]));
const BOXES: ReadonlySet<object> = new Set(
  [Number, String, Boolean, BigInt].map(({ prototype }) => prototype),
);

/**
 * Encodes a value. Plain records, arrays, maps and numbers are written directly; other values are
 * first copied with structured clone, which removes getters, proxies and classes.
 *
 * @param beside buffers that are not written but referred to by number.
 * @throws {DOMException} `DataCloneError` when the value cannot be cloned, or is bound to this
 * process.
 */
export function writeValue(
  value: unknown,
  beside: readonly ArrayBuffer[] = [],
): WrittenValue {
  try {
    return new ValueWriter(beside, false).write(value);
  } catch (error) {
    if (error !== NOT_PLAIN) throw error;
  }
  const [clone, buffers] = structuredClone([value, beside]) as [unknown, readonly ArrayBuffer[]];
  return new ValueWriter(buffers, true).write(clone);
}

class ValueWriter {
  readonly #copies: ArrayBuffer[] = [];
  readonly #ids = new Map<object, number>();
  #bytes: Uint8Array<ArrayBuffer>;
  #at = 0;

  constructor(
    private readonly beside: readonly ArrayBuffer[],
    /** True for the result of structured clone, which contains only built-in objects. */
    private readonly isClone: boolean,
  ) {
    this.#bytes = spareRoom ?? new Uint8Array(ROOM_BYTES);
    spareRoom = undefined;
  }

  write(value: unknown): WrittenValue {
    try {
      this.#value(value);
      return { bytes: this.#bytes.slice(0, this.#at), copies: this.#copies };
    } finally {
      if (this.#bytes.length <= ROOM_BYTES) spareRoom = this.#bytes;
    }
  }

  #value(value: unknown): void {
    switch (typeof value) {
      case "string":
        this.#byte(TAG.string);
        return this.#string(value);
      case "number":
        return this.#number(value);
      case "object":
        return value === null ? this.#byte(TAG.null) : this.#object(value);
      case "boolean":
        return this.#byte(value ? TAG.true : TAG.false);
      case "undefined":
        return this.#byte(TAG.undefined);
      case "bigint":
        this.#byte(TAG.bigint);
        return this.#string(value.toString(16));
      default:
        // A function or a symbol: structured clone throws the same error as elsewhere.
        throw NOT_PLAIN;
    }
  }

  #number(value: number): void {
    if ((value | 0) === value && !Object.is(value, -0)) {
      this.#byte(TAG.integer);
      return this.#varint(value < 0 ? -2 * value - 1 : 2 * value);
    }
    this.#byte(TAG.number);
    this.#reserve(Float64Array.BYTES_PER_ELEMENT);
    new DataView(this.#bytes.buffer).setFloat64(this.#at, value, true);
    this.#at += Float64Array.BYTES_PER_ELEMENT;
  }

  #object(value: object): void {
    const id = this.#ids.get(value);
    if (id !== undefined) {
      this.#byte(TAG.again);
      return this.#varint(id);
    }
    const prototype = Object.getPrototypeOf(value);
    if (prototype === Object.prototype) return this.#record(value as Record<string, unknown>);
    if (Array.isArray(value)) return this.#array(value);
    const kind = VIEW_KINDS.get(prototype);
    if (kind !== undefined) return this.#view(value as ArrayBufferView, kind);
    if (prototype === ArrayBuffer.prototype) return this.#buffer(value as ArrayBuffer);
    if (prototype === Map.prototype) {
      return this.#collection(TAG.map, value as Map<unknown, unknown>);
    }
    if (!this.isClone) throw NOT_PLAIN;
    this.#rare(value, prototype);
  }

  /** Writes objects that only occur in clones. */
  #rare(value: object, prototype: object): void {
    const kind = ERROR_KINDS.get(prototype);
    if (kind !== undefined) return this.#error(value as Error, kind);
    if (prototype === Set.prototype) return this.#collection(TAG.set, value as Set<unknown>);
    this.#note(value);
    if (prototype === Date.prototype) {
      this.#byte(TAG.date);
      return this.#number((value as Date).getTime());
    }
    if (prototype === RegExp.prototype) {
      this.#byte(TAG.regexp);
      this.#string((value as RegExp).source);
      return this.#string((value as RegExp).flags);
    }
    if (!BOXES.has(prototype)) throw uncloneable(prototype.constructor?.name ?? "an object");
    this.#byte(TAG.boxed);
    this.#value(value.valueOf());
  }

  /** Numbers an object before its contents are written. */
  #note(value: object): void {
    this.#ids.set(value, this.#ids.size);
  }

  #record(value: Record<string, unknown>): void {
    this.#note(value);
    this.#byte(TAG.record);
    this.#entries(value, Object.keys(value));
  }

  #entries(value: Record<string, unknown>, keys: readonly string[]): void {
    this.#varint(keys.length);
    for (const key of keys) {
      this.#string(key);
      this.#value(value[key]);
    }
  }

  #array(value: readonly unknown[]): void {
    const keys = Object.keys(value);
    const hasAll = isDense(keys, value.length);
    this.#note(value);
    this.#byte(hasAll ? TAG.array : TAG.sparseArray);
    this.#varint(value.length);
    if (!hasAll) return this.#entries(value as unknown as Record<string, unknown>, keys);
    for (const item of value) this.#value(item);
  }

  #collection(tag: number, value: ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>): void {
    this.#note(value);
    this.#byte(tag);
    this.#varint(value.size);
    for (const [key, item] of value.entries()) {
      this.#value(key);
      if (tag === TAG.map) this.#value(item);
    }
  }

  #error(error: Error, kind: number): void {
    this.#note(error);
    this.#byte(TAG.error);
    this.#byte(kind);
    const parts = Object.entries(ERROR_PARTS).filter(([part]) => Object.hasOwn(error, part));
    this.#byte(parts.reduce((bits, [, bit]) => bits | bit, 0));
    for (const [part] of parts) this.#value(error[part as keyof typeof ERROR_PARTS]);
  }

  /** Writes a view after its buffer, which several views may share. */
  #view(view: ArrayBufferView, kind: number): void {
    const { buffer, byteOffset, byteLength } = view;
    this.#byte(TAG.view);
    this.#byte(kind);
    this.#object(buffer);
    this.#note(view);
    this.#varint(byteOffset);
    this.#varint(byteLength);
  }

  #buffer(buffer: ArrayBuffer): void {
    // Structured clone throws the error for a detached buffer.
    if (buffer.detached && !this.isClone) throw NOT_PLAIN;
    this.#note(buffer);
    const number = this.beside.indexOf(buffer);
    if (number >= 0) return this.#buffered(number);
    if (buffer.resizable) {
      this.#byte(TAG.resizableBuffer);
      this.#varint(buffer.maxByteLength);
    } else if (buffer.byteLength >= LARGE_BYTES) {
      return this.#buffered(this.beside.length + this.#copies.push(buffer.slice()) - 1);
    } else this.#byte(TAG.buffer);
    this.#varint(buffer.byteLength);
    this.#reserve(buffer.byteLength);
    this.#bytes.set(new Uint8Array(buffer), this.#at);
    this.#at += buffer.byteLength;
  }

  #buffered(number: number): void {
    this.#byte(TAG.buffered);
    this.#varint(number);
  }

  /** Writes length and width, then one byte per character, or two for wide strings. */
  #string(text: string): void {
    const { length } = text;
    this.#reserve(VARINT_BYTES + 2 * length);
    const start = this.#at;
    this.#varint(2 * length);
    for (let index = 0; index < length; index++) {
      const code = text.charCodeAt(index);
      if (code > 0xff) {
        this.#at = start;
        return this.#wideString(text);
      }
      this.#bytes[this.#at++] = code;
    }
  }

  #wideString(text: string): void {
    this.#varint(2 * text.length + 1);
    for (let index = 0; index < text.length; index++) {
      const code = text.charCodeAt(index);
      this.#bytes[this.#at++] = code;
      this.#bytes[this.#at++] = code >>> 8;
    }
  }

  #varint(value: number): void {
    this.#reserve(VARINT_BYTES);
    let rest = value;
    for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) {
      this.#bytes[this.#at++] = rest % 0x80 + 0x80;
    }
    this.#bytes[this.#at++] = rest;
  }

  #byte(value: number): void {
    this.#reserve(1);
    this.#bytes[this.#at++] = value;
  }

  #reserve(count: number): void {
    const needed = this.#at + count;
    if (needed <= this.#bytes.length) return;
    const bytes = new Uint8Array(Math.max(needed, 2 * this.#bytes.length));
    bytes.set(this.#bytes.subarray(0, this.#at));
    this.#bytes = bytes;
  }
}

function uncloneable(what: string): DOMException {
  return new DOMException(`${what} could not be cloned for another process`, "DataCloneError");
}

/** An encoded frame. */
export interface EncodedFrame {
  /** The frame without its separate buffers. */
  readonly body: Uint8Array<ArrayBuffer>;
  /** Moved and large buffers, each of which is received into a separate buffer; some are empty. */
  readonly buffers: readonly Uint8Array<ArrayBuffer>[];
}

/**
 * Encodes a frame. The buffers in `transfer` are moved, not copied, so they are detached
 * afterwards.
 *
 * @throws {DOMException} `DataCloneError` when the frame cannot be cloned; no buffer has moved
 * then.
 *
 * @example
 * ```ts
 * import { decodeFrame, encodeFrame } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const tensor = new Float32Array([1, 2]);
 * const { body, buffers } = encodeFrame({ kind: "activation", tensor }, [tensor.buffer]);
 * assert.equal(tensor.length, 0);
 * const frame = decodeFrame(body, buffers.map(({ buffer }) => buffer));
 * assert.deepEqual(frame, { kind: "activation", tensor: new Float32Array([1, 2]) });
 * ```
 */
export function encodeFrame(frame: unknown, transfer: readonly ArrayBuffer[]): EncodedFrame {
  try {
    checkTransfer(transfer);
    const { bytes, copies } = writeValue(frame, transfer);
    const moved = transfer.map((buffer) => buffer.transfer());
    return { body: bytes, buffers: [...moved, ...copies].map((buffer) => new Uint8Array(buffer)) };
  } catch (error) {
    throw new DOMException((error as Error).message, "DataCloneError");
  }
}

/**
 * Decodes a frame. The buffers become parts of it; see {@linkcode encodeFrame}.
 *
 * @throws {SyntaxError} when the bytes are not a frame.
 */
export function decodeFrame(body: Uint8Array, buffers: readonly ArrayBuffer[]): unknown {
  return readValue(body, buffers);
}
