/**
 * Flat arrays that only the optimizer uses: on the device, or *offloaded* to the host.
 *
 * @module
 */

import type { Device } from "../devices/device.ts";
import { type FlatRange, type FlatTensor, readFlat, writeFlat } from "./flat_tensor.ts";

/** A flat f32 array on the host; it takes memory when first used, so that one can be planned. */
export interface HostState {
  /** How long it is. */
  readonly length: number;
  /** Its elements. */
  readonly values: Float32Array<ArrayBuffer>;
}

/** A flat f32 array that only the optimizer uses: on the device, or offloaded to the host. */
export type FlatState = FlatTensor | HostState;

/** A state on the host, all zero. */
export function hostState(length: number): HostState {
  let values: Float32Array<ArrayBuffer> | undefined;
  return {
    length,
    get values() {
      return values ??= new Float32Array(length);
    },
  };
}

/** Sets a range of a flat state. */
export function writeState(
  device: Device,
  state: FlatState,
  { offset, length }: FlatRange,
  values: Float32Array,
): void {
  if (values.length !== length) {
    throw new RangeError(
      `Cannot write a state: it must have ${length} elements, received ${values.length}`,
    );
  }
  if ("values" in state) state.values.set(values, offset);
  else writeFlat(device, state, offset, values);
}

/** A copy of a range of a flat state. */
export async function readState(
  device: Device,
  state: FlatState,
  range: FlatRange,
): Promise<Float32Array<ArrayBuffer>> {
  const { offset, length } = range;
  return "values" in state
    ? state.values.slice(offset, offset + length)
    : await readFlat(device, state, range) as Float32Array<ArrayBuffer>;
}
