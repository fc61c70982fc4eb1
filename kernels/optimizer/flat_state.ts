/**
 * Flat arrays that only the optimizer uses: on the device, or *offloaded* to the host.
 *
 * @module
 */

import type { Device, Tensor } from "../devices/device.ts";

/** A range of the flat arrays, in elements. */
export interface FlatRange {
  /** Where it starts. */
  readonly offset: number;
  /** How long it is. */
  readonly length: number;
}

/** A flat f32 array on the host; it takes memory when first used, so that one can be planned. */
export interface HostState {
  /** How long it is. */
  readonly length: number;
  /** Its elements. */
  readonly values: Float32Array<ArrayBuffer>;
}

/** A flat f32 array that only the optimizer uses: on the device, or offloaded to the host. */
export type FlatState = Tensor | HostState;

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
  if (!("values" in state)) return device.write(device.view(state, offset, [length]), values);
  if (values.length !== length) {
    throw new RangeError(
      `Cannot write a state: it must have ${length} elements, received ${values.length}`,
    );
  }
  state.values.set(values, offset);
}

/** A copy of a range of a flat state. */
export async function readState(
  device: Device,
  state: FlatState,
  { offset, length }: FlatRange,
): Promise<Float32Array<ArrayBuffer>> {
  return "values" in state
    ? state.values.slice(offset, offset + length)
    : await device.read(device.view(state, offset, [length]));
}
