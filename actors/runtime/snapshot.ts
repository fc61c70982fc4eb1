/**
 * The copy that a receiver gets of a message sent within an isolate.
 *
 * @module
 */

import { messageOf } from "./failure.ts";

/** Deepest nesting that is copied by hand; beyond it, and for cycles, the platform does it. */
const MAX_DEPTH = 6;

const NOT_PLAIN = Symbol("not plain");

/** Arrays of numbers that messages are made of. */
const NUMBERS: ReadonlySet<object> = new Set(
  [Float32Array, Float16Array, Float64Array, Int32Array, Uint8Array].map(({ prototype }) =>
    prototype
  ),
);

/** Copies primitives, arrays, plain objects, maps and numbers, and gives up at anything else. */
function copyPlain(value: unknown, depth: number): unknown {
  if (typeof value !== "object" || value === null) {
    return typeof value === "function" || typeof value === "symbol" ? NOT_PLAIN : value;
  }
  if (depth === 0) return NOT_PLAIN;
  if (Array.isArray(value)) {
    const copy = new Array(value.length);
    for (let index = 0; index < value.length; index++) {
      const item = copyPlain(value[index], depth - 1);
      if (item === NOT_PLAIN) return NOT_PLAIN;
      copy[index] = item;
    }
    return copy;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype) {
    if (NUMBERS.has(prototype)) return copyNumbers(value as Float32Array);
    return prototype === Map.prototype ? copyMap(value as Map<unknown, unknown>, depth) : NOT_PLAIN;
  }
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(value)) {
    const item = copyPlain((value as Record<string, unknown>)[key], depth - 1);
    if (item === NOT_PLAIN || key === "__proto__") return NOT_PLAIN;
    copy[key] = item;
  }
  return copy;
}

/** Copies what has its memory to itself: of a part of a buffer, the platform copies the whole. */
function copyNumbers(values: Float32Array): unknown {
  const { buffer, byteLength } = values;
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  return isWhole && !buffer.detached && !buffer.resizable ? values.slice() : NOT_PLAIN;
}

function copyMap(map: Map<unknown, unknown>, depth: number): unknown {
  const copy = new Map();
  for (const [key, value] of map) {
    const ownKey = copyPlain(key, depth - 1), own = copyPlain(value, depth - 1);
    if (ownKey === NOT_PLAIN || own === NOT_PLAIN) return NOT_PLAIN;
    copy.set(ownKey, own);
  }
  return copy;
}

/** Bytes up to which a copy costs less than asking the platform to move a buffer. */
const SMALL_BYTES = 4096;

/** Whether these can be copied and then taken away by hand. */
function areSmall(transfer: readonly Transferable[]): transfer is readonly ArrayBuffer[] {
  return transfer.every((one) => one instanceof ArrayBuffer && one.byteLength <= SMALL_BYTES);
}

/** Checks buffers that are to move. @throws {TypeError} when one is listed twice or has moved. */
export function checkTransfer(transfer: readonly Transferable[]): void {
  if (transfer.length > 1 && new Set(transfer).size < transfer.length) {
    throw new TypeError("An ArrayBuffer that is transferred twice could not be cloned.");
  }
  if (transfer.some((one) => (one as ArrayBuffer).detached)) {
    throw new TypeError("An ArrayBuffer is detached and could not be cloned.");
  }
}

/**
 * A copy that shares nothing with `value`, and takes over the buffers in `transfer`: what a
 * message between isolates goes through. Small plain records, most messages of an actor system,
 * are copied by hand, which is many times as fast.
 *
 * @throws {DOMException} `DataCloneError` when the platform cannot clone the value.
 */
export function snapshot<T>(value: T, transfer: readonly Transferable[] = []): T {
  return cloning(() => {
    checkTransfer(transfer);
    if (areSmall(transfer)) {
      const copy = copyPlain(value, MAX_DEPTH);
      if (copy !== NOT_PLAIN) {
        for (const buffer of transfer) buffer.transfer(0);
        return copy as T;
      }
    }
    return structuredClone(value, { transfer: [...transfer] });
  });
}

/** The platform refused to clone a value. */
export function isCloneError(error: unknown): error is DOMException {
  return error instanceof DOMException && error.name === "DataCloneError";
}

/**
 * Does what clones a value. Getters throw what they like, and of a list that holds no buffers the
 * platform complains in its own way: whatever it is, the value cannot be cloned.
 *
 * @throws {DOMException} `DataCloneError`
 */
export function cloning<T>(clone: () => T): T {
  try {
    return clone();
  } catch (error) {
    throw isCloneError(error) ? error : new DOMException(messageOf(error), "DataCloneError");
  }
}
