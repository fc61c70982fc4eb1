/**
 * Values as bytes: all that structured clone takes and that can leave a process.
 *
 * [Note: why not V8's serializer] Deno's `Serializer` and `Deserializer` of `node:v8` lose one to
 * three kilobytes of native memory a call, and are several times slower for small records.
 *
 * @module
 */

import { ERROR_PARTS, ERRORS, TAG, VIEWS } from "./value_format.ts";

/** A value in bytes, and the buffers that stand beside them. */
export interface WrittenValue {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Copies of large buffers; their numbers follow those of `beside`. */
  readonly copies: readonly ArrayBuffer[];
}

/** Buffers from here on stand beside the bytes, so they are copied once. */
const LARGE_BYTES = 4096;

/** Bytes to begin with, and those above which the room for writing is not kept. */
const ROOM_BYTES = 65_536;

/** Bytes of the longest varint: places are below 2^53. */
const VARINT_BYTES = 8;

/** Room of the last writer; a getter may write while another writer is at work. */
let spareRoom: Uint8Array<ArrayBuffer> | undefined;

/** There is something that only the platform can copy, or say why it cannot. */
const NOT_PLAIN = Symbol("not plain");

const VIEW_KINDS = new Map<object, number>(VIEWS.map(({ prototype }, kind) => [prototype, kind]));
const ERROR_KINDS = new Map<object, number>(ERRORS.map(({ prototype }, kind) => [prototype, kind]));
const BOXES: ReadonlySet<object> = new Set(
  [Number, String, Boolean, BigInt].map(({ prototype }) => prototype),
);

/**
 * A value as bytes. Plain records, arrays, maps and numbers are written as they are; of anything
 * else the platform makes a clone first, which has no getters, proxies or classes.
 *
 * @param beside buffers that are not written but referred to by their number.
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
  readonly #beside: readonly ArrayBuffer[];
  /** All objects are of this platform, as structured clone makes them. */
  readonly #isClone: boolean;
  readonly #copies: ArrayBuffer[] = [];
  readonly #ids = new Map<object, number>();
  #bytes: Uint8Array<ArrayBuffer>;
  #at = 0;

  constructor(beside: readonly ArrayBuffer[], isClone: boolean) {
    this.#beside = beside;
    this.#isClone = isClone;
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
        throw uncloneable(`a ${typeof value}`);
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
    if (!this.#isClone) throw NOT_PLAIN;
    this.#rare(value, prototype);
  }

  /** What is found in clones only. */
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

  /** Gives an object its number, before what is in it. */
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
    // Places come first among the names, so of as many names as places the last tells of all.
    const last = `${keys.length - 1}`;
    const isDense = keys.length === value.length && (keys.length === 0 || keys.at(-1) === last);
    this.#note(value);
    this.#byte(isDense ? TAG.array : TAG.sparseArray);
    this.#varint(value.length);
    if (!isDense) return this.#entries(value as unknown as Record<string, unknown>, keys);
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
    const has = (part: keyof typeof ERROR_PARTS) =>
      Object.hasOwn(error, part) ? ERROR_PARTS[part] : 0;
    const parts = has("message") | has("stack") | has("cause");
    this.#byte(parts);
    if (parts & ERROR_PARTS.message) this.#value(error.message);
    if (parts & ERROR_PARTS.stack) this.#value(error.stack);
    if (parts & ERROR_PARTS.cause) this.#value(error.cause);
  }

  /** A view follows its buffer, which several may share. */
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
    // The platform says what is wrong with it.
    if (buffer.detached && !this.#isClone) throw NOT_PLAIN;
    this.#note(buffer);
    const number = this.#beside.indexOf(buffer);
    if (number >= 0) return this.#buffered(number);
    if (buffer.resizable) {
      this.#byte(TAG.resizableBuffer);
      this.#varint(buffer.maxByteLength);
    } else if (buffer.byteLength >= LARGE_BYTES) {
      return this.#buffered(this.#beside.length + this.#copies.push(buffer.slice()) - 1);
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

  /** Its length and whether it is wide, then one byte a character, or two. */
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
