/**
 * Arrays that travel, cut into equal parts and put together again: the halves of a micro-batch.
 *
 * @module
 */

import type { MessageArray } from "../../kernels/mod.ts";

/** One of `count` equal parts, in the memory of the whole. */
export function cut(array: MessageArray, index: number, count: number): MessageArray {
  if (count === 1) return array;
  const length = array.length / count;
  return array.subarray(index * length, (index + 1) * length);
}

/** The parts one after the other; one alone stays as it is. */
export function join(parts: readonly MessageArray[]): MessageArray {
  const [first] = parts as [MessageArray];
  if (parts.length === 1) return first;
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const whole = first instanceof Float32Array ? new Float32Array(length) : new Float16Array(length);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
