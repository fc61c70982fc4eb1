/**
 * Arrays that travel, cut into equal parts and put together again: the halves of a micro-batch.
 *
 * @module
 */

import { keyed, type Passed, passedOf, type ValueArray } from "../../../kernels/mod.ts";

/** One of `count` equal parts, in the memory of the whole. */
export function cut<A extends ValueArray>(array: A, index: number, count: number): A {
  if (count === 1) return array;
  const length = array.length / count;
  return array.subarray(index * length, (index + 1) * length) as A;
}

/** The parts one after the other; one alone stays as it is. */
export function join<A extends ValueArray>(parts: readonly A[]): A {
  const [first] = parts as [A];
  if (parts.length === 1) return first;
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const whole = new (first.constructor as new (length: number) => A)(length);
  let offset = 0;
  for (const part of parts) {
    whole.set(part as never, offset);
    offset += part.length;
  }
  return whole;
}

/** Does something to every array that is handed on. */
export function mapPassed(passed: Passed, map: (array: ValueArray) => ValueArray): Passed {
  const values = Object.entries(keyed(passed)).map(([key, array]) => [key, map(array)]);
  return passedOf(Object.fromEntries(values));
}

/** Puts together what is handed on in parts, key by key. */
export function joinPassed(
  parts: readonly Passed[],
  join: (arrays: readonly ValueArray[]) => ValueArray,
): Passed {
  const [first] = parts as [Passed];
  if (parts.length === 1) return first;
  const all = parts.map(keyed);
  return passedOf(
    Object.fromEntries(Object.keys(all[0]!).map((key) => [key, join(all.map((one) => one[key]!))])),
  );
}
