/**
 * The weights of a stage that are not trained: they have no gradients, no moments and no step.
 *
 * @module
 */

import type { Device, Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import { partOf } from "../optimizer/flat_tensor.ts";
import { type Precision, storageDtype, toStorage } from "../layers/precision.ts";

/** Frozen weights on a device, by full name. */
export interface FrozenWeights {
  /** What the models read. */
  readonly tensors: ReadonlyMap<string, Tensor>;
  /** Sets one, or a part of it from an element on. */
  write(name: string, values: Float32Array, from?: number): void;
  /** Copies what was written, bit for bit, from an element on. */
  read(name: string, from: number, into: Float32Array): Promise<void>;
}

/** Allocates frozen weights. */
export function openFrozen(
  device: Device,
  specs: readonly { readonly name: string; readonly shape: readonly number[] }[],
  precision: Precision,
): FrozenWeights {
  const dtype = storageDtype(precision);
  const tensors = new Map(specs.map(({ name, shape }) => [name, device.alloc(dtype, shape)]));
  // FP16 cannot give back what was written, so the host keeps it, as it were a master weight.
  const written = new Map(
    dtype === "f16"
      ? specs.map(({ name, shape }) => [name, new Float32Array(elementCount(shape))])
      : [],
  );
  return {
    tensors,
    write(name, values, from) {
      const part = partOf(device, tensors.get(name)!, values, from);
      device.write(part, toStorage(dtype, values));
      written.get(name)?.set(values, from);
    },
    async read(name, from, into) {
      const kept = written.get(name);
      if (kept) return into.set(kept.subarray(from, from + into.length));
      await device.read(device.view(tensors.get(name)!, from, [into.length]), into);
    },
  };
}
