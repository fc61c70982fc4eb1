/**
 * What a stage holds on its device from the start to the end: parameters and what steps them.
 *
 * @module
 */

import type { Device, Tensor } from "../devices/device.ts";
import type { Precision } from "../layers/precision.ts";
import { type NamedProgram, parametersOf, precisionOf } from "../compile/stage_program.ts";
import { allocateNorms, type NormMemory } from "../optimizer/gradient_norms.ts";
import { allocateOptimizer, type OptimizerMemory } from "../optimizer/optimizer.ts";
import { MOMENTS } from "../optimizer/optimizer_options.ts";
import { allocateSums, type SumMemory } from "../optimizer/gradient_sums.ts";
import { createParameters, type ParameterStore } from "../optimizer/parameters.ts";
import type { StageOptions } from "./stage_options.ts";

/** What a stage holds on its device from the start, beside frozen weights. */
export interface Resident {
  readonly precision: Precision;
  readonly store: ParameterStore;
  /** Full names and shapes of the weights that are not trained. */
  readonly frozen: readonly { readonly name: string; readonly shape: readonly number[] }[];
  readonly optimizer: OptimizerMemory;
  readonly norms: NormMemory;
  /** What adding gradients takes, where they are added on the device. */
  readonly sums: SumMemory | undefined;
  readonly lossScale: Tensor;
}

/** Allocates what a stage holds from the start. */
export function allocateResident(
  device: Pick<Device, "alloc" | "view" | "hasFreeViews">,
  layers: readonly NamedProgram[],
  { optimizer, bucketSize, offload = false, versions = 1, ...adding }: StageOptions,
): Resident {
  const precision = precisionOf(layers), parameters = parametersOf(layers);
  const store = createParameters(device, parameters.filter(({ frozen }) => !frozen), {
    moments: MOMENTS[optimizer.kind].length,
    precision,
    offload,
    versions,
    ...bucketSize && { bucketSize },
  });
  return {
    precision,
    store,
    frozen: parameters.filter(({ frozen }) => frozen),
    optimizer: allocateOptimizer(device, store, optimizer),
    norms: allocateNorms(device, store),
    sums: allocateSums(device, store, adding),
    lossScale: device.alloc("f32", []),
  };
}
