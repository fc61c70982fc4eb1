/**
 * What stages hand to each other, on its way between the host and tensors.
 *
 * @module
 */

import type { Device, KeyedArrays, Passed, ValueArray } from "../../devices/device.ts";
import type { Ports } from "./activations.ts";

/** The values by their keys; the one tensor of a chain is `x`. */
export const keyed = (passed: Passed): KeyedArrays =>
  ArrayBuffer.isView(passed) ? { x: passed } : passed;

/** Values by their keys, or the array alone where the only one is the `x` of a chain. */
export function passedOf(values: KeyedArrays): Passed {
  const [key, ...more] = Object.keys(values), { x } = values;
  const isAlone = key === "x" && more.length === 0;
  return isAlone && (x instanceof Float32Array || x instanceof Float16Array) ? x : values;
}

/**
 * Writes what has arrived into the tensors of its keys; what has another key is left.
 *
 * @throws {TypeError} when a value is missing.
 */
export function writePassed(device: Device, tensors: Ports, passed: Passed | undefined): void {
  const values = passed && keyed(passed);
  for (const [key, tensor] of Object.entries(tensors)) {
    const array = values?.[key];
    if (!array) throw new TypeError(`Cannot run: the value "${key}" must have arrived`);
    device.write(tensor, array);
  }
}

/** Copies tensors to the host, into arrays of the same keys where there are any. */
export async function readPassed(device: Device, tensors: Ports, into?: Passed): Promise<Passed> {
  const arrays = into && keyed(into), values: Record<string, ValueArray> = {};
  for (const [key, tensor] of Object.entries(tensors)) {
    values[key] = await device.read<ValueArray>(tensor, arrays?.[key]);
  }
  return passedOf(values);
}
