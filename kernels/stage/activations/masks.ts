/**
 * The masks of a stage's dropouts: those of one layer and micro-batch at a time.
 *
 * They are computed on the host whenever a layer's models are about to run, for F, again for B, I or
 * W, and in each recomputation: a mask for each micro-batch in flight would be as large as an
 * activation.
 *
 * @module
 */

import { CHANCE_MAX } from "../../devices/simd/chance_kernels.ts";
import type { Device, Tensor } from "../../devices/device.ts";
import { elementCount } from "../../graph/shapes.ts";
import { type DropoutKey, openMask } from "../../layers/dropout.ts";
import type { Slicing } from "../../layers/batch.ts";
import type { NamedProgram } from "../../compile/stage_program.ts";
import type { SharedActivations } from "./activations.ts";

/** Computes masks. */
export interface Masks {
  /**
   * Leaves the masks of a layer where its models read them.
   *
   * @param key of the micro-batch; without one nothing is left out.
   */
  prepare(slice: number, layer: number, key: DropoutKey | undefined): void;
}

/** Opens the masks of a stage's layers, slice by slice, in the memory that all micro-batches share. */
export function openMasks(
  device: Device,
  slices: readonly (readonly NamedProgram[])[],
  { ports }: SharedActivations,
  slicing: Slicing | undefined,
): Masks {
  const pieces = new WeakMap<Tensor, readonly Tensor[]>();
  const piecesOf = (mask: Tensor) => {
    const known = pieces.get(mask) ?? cut(device, mask);
    pieces.set(mask, known);
    return known;
  };
  let scratch = new Float32Array(0), prepared: string | undefined;
  return {
    prepare(slice, layer, key) {
      const label = JSON.stringify([slice, layer, key]);
      if (label === prepared) return;
      prepared = label;
      const { name, program: { masks = [] } } = slices[slice]![layer]!;
      const part = slicing &&
        { index: slice, count: slicing.slices, samples: slicing.samples };
      for (const spec of masks) {
        const fill = openMask(spec, name, key, part);
        let from = 0;
        for (const piece of piecesOf(ports[slice]![layer]![spec.name]!)) {
          const length = elementCount(piece.shape);
          if (scratch.length < length) scratch = new Float32Array(length);
          const values = scratch.subarray(0, length);
          fill(values, from);
          device.write(piece, values);
          from += length;
        }
      }
    },
  };
}

/** The parts in which a tensor is written. */
function cut(device: Device, tensor: Tensor): Tensor[] {
  const length = elementCount(tensor.shape);
  if (!device.hasFreeViews) return [tensor];
  return Array.from({ length: Math.ceil(length / CHANCE_MAX) }, (_, i) => {
    const from = i * CHANCE_MAX;
    return device.view(tensor, from, [Math.min(CHANCE_MAX, length - from)]);
  });
}
