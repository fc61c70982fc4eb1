/**
 * Values out of the bytes that a {@linkcode writeValue} made.
 *
 * @module
 */

import { ERROR_PARTS, ERRORS, TAG, VIEWS } from "./value_format.ts";

/** Characters that are made into a string at once; a call takes only so many arguments. */
const STRING_PART = 4096;

/**
 * The value in `bytes`. Whatever they hold, no more is allocated than a multiple of their length.
 *
 * @param beside the buffers that it refers to by number, which become parts of it.
 * @throws {SyntaxError} when the bytes are no value.
 */
export function readValue(bytes: Uint8Array, beside: readonly ArrayBuffer[] = []): unknown {
  const reader = new ValueReader(bytes, beside);
  const value = reader.value();
  if (reader.left > 0) throw unreadable(`${reader.left} bytes too many`);
  return value;
}

class ValueReader {
  readonly #bytes: Uint8Array;
  readonly #beside: readonly ArrayBuffer[];
  readonly #objects: object[] = [];
  #at = 0;

  constructor(bytes: Uint8Array, beside: readonly ArrayBuffer[]) {
    this.#bytes = bytes;
    this.#beside = beside;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  value(): unknown {
    const tag = this.#byte();
    switch (tag) {
      case TAG.undefined:
        return undefined;
      case TAG.null:
        return null;
      case TAG.false:
        return false;
      case TAG.true:
        return true;
      case TAG.integer: {
        const zigzag = this.#varint();
        return zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
      }
      case TAG.number:
        return this.#number();
      case TAG.string:
        return this.#string();
      case TAG.bigint:
        return this.#bigint();
      default:
        return this.#object(tag);
    }
  }

  #object(tag: number): unknown {
    switch (tag) {
      case TAG.record:
        return this.#entries(this.#note({}));
      case TAG.array:
        return this.#array();
      case TAG.sparseArray:
        return this.#entries(this.#note(new Array(this.#varint())));
      case TAG.again:
        return this.#objects[this.#varint()] ?? this.#fail("an object that did not come before");
      case TAG.map:
        return this.#map();
      case TAG.set: {
        const set = this.#note(new Set());
        for (let rest = this.#count(); rest > 0; rest--) set.add(this.value());
        return set;
      }
      case TAG.view:
        return this.#view();
      case TAG.buffer:
      case TAG.resizableBuffer:
      case TAG.buffered:
        return this.#note(this.#buffer(tag));
      default:
        return this.#rare(tag);
    }
  }

  #rare(tag: number): unknown {
    switch (tag) {
      case TAG.date:
        return this.#note(new Date(this.value() as number));
      case TAG.regexp:
        return this.#note(new RegExp(this.#string(), this.#string()));
      case TAG.boxed:
        return this.#note(Object(this.value()));
      case TAG.error:
        return this.#error();
    }
    return this.#fail(`the tag ${tag}`);
  }

  #note<T extends object>(value: T): T {
    this.#objects.push(value);
    return value;
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

  #array(): unknown[] {
    const array = this.#note(new Array(this.#count()));
    for (let index = 0; index < array.length; index++) array[index] = this.value();
    return array;
  }

  #map(): Map<unknown, unknown> {
    const map = this.#note(new Map());
    for (let rest = this.#count(); rest > 0; rest--) map.set(this.value(), this.value());
    return map;
  }

  #error(): Error {
    const Kind = ERRORS[this.#byte()] ?? this.#fail("an error of no kind");
    const error = this.#note(new Kind()), parts = this.#byte();
    delete error.stack;
    for (const part of ["message", "stack", "cause"] as const) {
      if (!(parts & ERROR_PARTS[part])) continue;
      const descriptor = { ...DATA_PROPERTY, enumerable: false, value: this.value() };
      Object.defineProperty(error, part, descriptor);
    }
    return error;
  }

  #view(): ArrayBufferView {
    const View = (VIEWS[this.#byte()] ?? this.#fail("a view of no kind")) as Uint8ArrayConstructor;
    const buffer = this.value();
    if (!(buffer instanceof ArrayBuffer)) return this.#fail("a view of no buffer");
    const offset = this.#varint(), bytes = this.#varint();
    // A DataView has no elements.
    const size = View.BYTES_PER_ELEMENT ?? 1;
    if (offset + bytes > buffer.byteLength || offset % size || bytes % size) {
      return this.#fail("a view beyond its buffer");
    }
    return this.#note(new View(buffer, offset, bytes / size));
  }

  #buffer(tag: number): ArrayBuffer {
    if (tag === TAG.buffered) {
      return this.#beside[this.#varint()] ?? this.#fail("a buffer that did not come");
    }
    const maxByteLength = tag === TAG.resizableBuffer ? this.#varint() : undefined;
    const part = this.#take(this.#varint());
    if (maxByteLength === undefined) return new Uint8Array(part).buffer;
    const buffer = new ArrayBuffer(part.length, { maxByteLength });
    new Uint8Array(buffer).set(part);
    return buffer;
  }

  #bigint(): bigint {
    const text = this.#string();
    return text.startsWith("-") ? -BigInt(`0x${text.slice(1)}`) : BigInt(`0x${text}`);
  }

  #number(): number {
    const part = this.#take(Float64Array.BYTES_PER_ELEMENT);
    return new DataView(part.buffer, part.byteOffset).getFloat64(0, true);
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

  /** A number of things that take a byte or more each. */
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
    return this.#bytes.subarray(this.#at, this.#at += count);
  }

  #byte(): number {
    return this.#bytes[this.#at++] ?? this.#fail("an early end");
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
