/**
 * The values of a stand-in: numbers by the keys under which stages hand them to each other.
 *
 * @module
 */

import { elementCount, keyed, type Passed, passedOf, type TensorSpec } from "../../kernels/mod.ts";

/** Numbers by the keys of values. */
export type Numbers = Record<string, Float32Array>;

/** Elements of some values. */
export const sumOf = (specs: readonly TensorSpec[]): number =>
  specs.reduce((sum, { shape }) => sum + elementCount(shape), 0);

/** Numbers of what has arrived. */
export const numbersOf = (passed: Passed = {}): Numbers =>
  Object.fromEntries(
    Object.entries(keyed(passed)).map(([key, array]) => [key, Float32Array.from(array, Number)]),
  );

/** Values one after the other; zeros where there is none, as of what has no gradient. */
export function joined(specs: readonly TensorSpec[], values: Numbers): Float32Array {
  const whole = new Float32Array(sumOf(specs));
  let offset = 0;
  for (const { name, shape } of specs) {
    const length = elementCount(shape), own = values[name];
    if (own) checkLength("a value", own, length);
    whole.set(own ?? [], offset);
    offset += length;
  }
  return whole;
}

/** The values of which an array is made up. */
export function parted(specs: readonly TensorSpec[], whole: Float32Array): Numbers {
  let offset = 0;
  return Object.fromEntries(
    specs.map(({ name, shape }) => [name, whole.slice(offset, offset += elementCount(shape))]),
  );
}

/** The same numbers as their types hold them, whether they travel or not. */
export const typed = (specs: readonly TensorSpec[], values: Numbers): Numbers =>
  numbersOf(arraysOf("F", specs, values));

/** Arrays of their types, those that came back where there are any. */
export function arraysOf(
  what: string,
  specs: readonly TensorSpec[],
  values: Numbers,
  into: Passed = {},
): Passed {
  const arrays = keyed(into);
  return passedOf(
    Object.fromEntries(specs.map(({ name, dtype }) => {
      const numbers = values[name] as Float32Array<ArrayBuffer>;
      const array = arrays[name] as Float32Array<ArrayBuffer> | undefined;
      if (array) {
        checkLength(what, array, numbers.length);
        array.set(numbers);
        return [name, array];
      }
      if (dtype === "i32") return [name, Int32Array.from(numbers)];
      if (dtype === "i64") {
        return [name, BigInt64Array.from(numbers, (one) => BigInt(Math.trunc(one)))];
      }
      if (dtype === "bool") return [name, Uint8Array.from(numbers, (one) => Number(one !== 0))];
      return [name, numbers];
    })),
  );
}

/** Adds numbers to others. */
export function addTo(sum: Float32Array, values: Float32Array): void {
  for (let i = 0; i < sum.length; i++) sum[i]! += values[i]!;
}

/** Refuses an array of another length. */
export function checkLength(what: string, { length }: ArrayLike<number>, must: number): void {
  // An array that was transferred away has no elements.
  if (length !== must) throw refused(what, `an array must have ${must} values`, String(length));
}

/** What a rehearsal refuses, and why. */
export function refused(what: string, must: string, received: string): RangeError {
  return new RangeError(`Cannot rehearse ${what}: ${must}, received ${received}`);
}
