/**
 * Flat arrays that only the optimizer uses: on the device, or *offloaded* to the host.
 *
 * @module
 */

import type { Device } from "../devices/device.ts";
import { type FlatRange, type FlatTensor, readFlatInto, writeFlat } from "./flat_tensor.ts";

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

/** Copies the elements of a flat state from `offset` on to the host. */
export async function readStateInto(
  device: Device,
  state: FlatState,
  offset: number,
  into: Float32Array,
): Promise<void> {
  if ("values" in state) into.set(state.values.subarray(offset, offset + into.length));
  else await readFlatInto(device, state, offset, into);
}
