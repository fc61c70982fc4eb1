/**
 * Digests of values: 64 bits of the structure of anything that can be sent, including tensors.
 *
 * [Note: digests] Two lanes of 32 bits; each word is rotated and multiplied into both, because integer
 * multiplication is fast in JavaScript: about a nanosecond a word. Digests find differences; they are
 * not cryptographic. The rotation is needed because two flipped signs in a tensor would cancel without
 * it.
 *
 * @module
 */

/**
 * A running hash of values.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const running = new Digest();
 * const hashes = ["0F0", "0F1", "0F0"].map((name) => running.text(name).toString());
 * assert.equal(new Set(hashes).size, 3);
 * ```
 */
export class Digest {
  #a = 0;
  #b = 0;

  /** Creates an empty hash. */
  constructor() {
    this.reset();
  }

  /** Resets the hash. */
  reset(): this {
    this.#a = 0x2545f491;
    this.#b = 0x4f6cdd1d;
    return this;
  }

  /** Adds 32 bits. */
  word(word: number): this {
    const a = this.#a ^ word, b = this.#b + word;
    this.#a = Math.imul((a << 13) | (a >>> 19), 0x9e3779b1);
    this.#b = Math.imul((b << 17) | (b >>> 15), 0x85ebca77);
    return this;
  }

  /** Adds a number; 0 and -0 differ, and 1 and "1". */
  number(value: number): this {
    if ((value | 0) === value && !Object.is(value, -0)) return this.word(1).word(value);
    DOUBLE[0] = value;
    return this.word(2).word(WORDS[0]!).word(WORDS[1]!);
  }

  /** Adds a text. */
  text(text: string): this {
    const known = texts.get(text) ?? hashText(text);
    return this.word(known.a).word(known.b);
  }

  /** Adds bytes. */
  bytes(buffer: ArrayBufferLike, offset = 0, length = buffer.byteLength): this {
    this.word(length);
    // Views of words must be aligned; the rare others are copied.
    const aligned = offset % 4 === 0 ? buffer : buffer.slice(offset, offset + length);
    const words = new Int32Array(aligned, aligned === buffer ? offset : 0, length >> 2);
    let a = this.#a, b = this.#b, c = ~a, d = ~b;
    // Even and odd words are separate, because each multiplication waits for the previous one.
    const pairs = words.length & ~1;
    for (let index = 0; index < pairs; index += 2) {
      const even = words[index]!, odd = words[index + 1]!;
      const x = a ^ even, y = b + even, z = c ^ odd, w = d + odd;
      a = Math.imul((x << 13) | (x >>> 19), 0x9e3779b1);
      b = Math.imul((y << 17) | (y >>> 15), 0x85ebca77);
      c = Math.imul((z << 13) | (z >>> 19), 0x9e3779b1);
      d = Math.imul((w << 17) | (w >>> 15), 0x85ebca77);
    }
    this.#a = a;
    this.#b = b;
    this.word(c).word(d);
    if (pairs < words.length) this.word(words[pairs]!);
    for (const byte of new Uint8Array(buffer, offset + (length & ~3), length & 3)) this.word(byte);
    return this;
  }

  /** Adds any value that can be cloned; an unknown kind of value is added by its kind only. */
  value(value: unknown, depth = MAX_DEPTH): this {
    switch (typeof value) {
      case "number":
        return this.number(value);
      case "string":
        // Of a file only its name, because its folder differs between machines.
        return this.word(3)
          .text(value.startsWith("file:") ? value.slice(value.lastIndexOf("/")) : value);
      case "boolean":
        return this.word(value ? 4 : 5);
      case "undefined":
        return this.word(6);
      case "bigint":
        return this.word(7).text(String(value));
      case "object":
        return value === null ? this.word(8) : this.#object(value, depth);
      default:
        return this.word(9);
    }
  }

  #object(value: object, depth: number): this {
    if (depth === 0) return this.word(10);
    if (Array.isArray(value)) {
      this.word(11).word(value.length);
      for (const item of value) this.value(item, depth - 1);
      return this;
    }
    const prototype = Object.getPrototypeOf(value);
    if (prototype === Object.prototype || prototype === null) return this.#record(value, depth);
    if (ArrayBuffer.isView(value)) {
      const { buffer, byteOffset, byteLength } = value;
      return this.word(13).text(value.constructor.name).bytes(buffer, byteOffset, byteLength);
    }
    if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) {
      return this.word(14).bytes(value);
    }
    // In the order of insertion: a set filled in order of arrival is a bug that simulations detect.
    if (value instanceof Map || value instanceof Set) {
      return this.word(15).value([...value as Iterable<unknown>], depth - 1);
    }
    if (value instanceof Error) return this.word(16).text(value.name).text(value.message);
    return this.word(17).text(value.constructor?.name ?? "");
  }

  #record(value: object, depth: number): this {
    // Only the id of an address counts: the place of an actor differs between runtimes.
    if ("serial" in value && "isolate" in value && "id" in value) {
      return this.word(18).value(value.id);
    }
    this.word(12);
    for (const key in value) {
      // A stack depends on the text of the program.
      if (key === "stack") continue;
      this.text(key).value((value as Record<string, unknown>)[key], depth - 1);
    }
    return this;
  }

  /** Returns both lanes, mixed. */
  lanes(): readonly [number, number] {
    return [finish(this.#a ^ (this.#b >>> 7)), finish(this.#b ^ (this.#a << 9))];
  }

  /** Returns 53 bits of the hash. */
  toNumber(): number {
    const [a, b] = this.lanes();
    return (a >>> 0) * 2 ** 21 + (b >>> 11);
  }

  /** Returns the hash as 16 hexadecimal digits. */
  toString(): string {
    return this.lanes().map((lane) => (lane >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

/**
 * Returns the digest of a value as 16 hexadecimal digits. It covers the structure, the keys in order, and
 * every bit of numbers and tensors. Of addresses of actors and URLs of files only the names count, and
 * stacks are ignored, because they differ between machines and runtimes.
 *
 * @param value anything that can be sent.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(digestOf({ loss: 0.5 }), digestOf({ loss: 0.5 }));
 * assert.notEqual(digestOf(new Float32Array([1, -1])), digestOf(new Float32Array([-1, 1])));
 * ```
 */
export function digestOf(value: unknown): string {
  return new Digest().value(value).toString();
}

/** Maximum nesting; deeper values are ignored. */
const MAX_DEPTH = 16;

const DOUBLE = new Float64Array(1);
const WORDS = new Int32Array(DOUBLE.buffer);

/** Hashes of texts: types, keys and ids are frequent. */
const texts = new Map<string, { readonly a: number; readonly b: number }>();

/** Maximum number of stored texts. */
const MAX_TEXTS = 4096;

/** Maximum length of a stored text, in UTF-16 code units. */
const MAX_TEXT_LENGTH = 64;

function hashText(text: string): { readonly a: number; readonly b: number } {
  let a = text.length, b = ~text.length;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    a = Math.imul(((a ^ code) << 13) | ((a ^ code) >>> 19), 0x9e3779b1);
    b = Math.imul(((b + code) << 17) | ((b + code) >>> 15), 0x85ebca77);
  }
  const known = { a: finish(a), b: finish(b) };
  if (texts.size >= MAX_TEXTS) texts.clear();
  if (text.length <= MAX_TEXT_LENGTH) texts.set(text, known);
  return known;
}

/** Mixes all bits, with the constants of MurmurHash3's last step. */
function finish(word: number): number {
  let mixed = Math.imul(word ^ (word >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
