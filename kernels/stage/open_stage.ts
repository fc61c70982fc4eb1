/**
 * Opens a stage: its models are compiled, its memory is allocated, and one is bound to the other.
 *
 * @module
 */

import type { LayerProgram } from "../compile/layer_program.ts";
import type { Device, Kernel } from "../devices/device.ts";
import type { ActivationOptions } from "./activations/activations.ts";
import { slicesOf, type StageProgram } from "../compile/stage_program.ts";
import { openGradientSums } from "../optimizer/gradient_sums.ts";
import { openGradientNorms } from "../optimizer/gradient_norms.ts";
import { openOptimizer } from "../optimizer/optimizer.ts";
import { openFrozen } from "./frozen.ts";
import { openInFlight } from "./activations/in_flight.ts";
import { allocateResident } from "./resident.ts";
import { type BackwardKind, parameterPorts, type StageLayer } from "./activations/slot.ts";
import { Stage } from "./stage.ts";
import { checkStageOptions, type StageOptions } from "./stage_options.ts";

/**
 * Compiles a stage and allocates its parameters, all zero until {@linkcode Stage.load}.
 *
 * @throws {RangeError} when the recompute interval or the bucket size is not a positive integer, or
 * the bucket is larger than the stage.
 * @throws {TypeError} when the precision is not that of the program.
 * @throws {Error} with the device's reason when it refuses a model.
 */
export async function openStage(
  device: Device,
  program: StageProgram,
  options: StageOptions,
): Promise<Stage> {
  checkStageOptions(program, options);
  const slices = await compileLayers(device, program, options), layers = slices[0]!;
  const resident = allocateResident(device, layers, options), { store } = resident;
  const frozen = openFrozen(device, resident.frozen, resident.precision);
  const optimizer = await openOptimizer(device, store, options.optimizer, resident.optimizer);
  const norms = await openGradientNorms(device, store, resident.norms);
  const sums = resident.sums && openGradientSums(device, store, resident.sums);
  const inFlight = openInFlight(device, {
    layers: slices,
    slicing: program.slicing,
    skips: program.skips,
    parameters: store.versions.map((_, i) => parameterPorts(layers, store, frozen.tensors, i)),
    lossScale: resident.lossScale,
  }, options);
  const parts = { device, layers, resident, frozen, optimizer, norms, sums, inFlight, options };
  return new Stage(parts);
}

/** The models of a layer that a stage compiles, by the names of their kernels. */
export function modelsToCompile(
  { models }: LayerProgram,
  { backward, recomputeInterval }: ActivationOptions,
): { readonly forward: Uint8Array } & Partial<Record<BackwardKind, Uint8Array>> {
  const isSplit = backward === "split";
  return {
    forward: models.forward,
    ...backward !== "never" && models.backward && { B: models.backward },
    ...isSplit && models.input && { I: models.input },
    // With an interval, W is B again.
    ...isSplit && models.weight && !recomputeInterval && { W: models.weight },
  };
}

/** The models of a layer, in order, that a stage compiles to write over what F saved. */
export function overwritesToCompile(
  { overwrites = [] }: LayerProgram,
  { backward }: ActivationOptions,
): readonly Uint8Array[] {
  return backward === "never" ? [] : overwrites.map(({ model }) => model);
}

/** Compiles the layers of a stage for each slice of a sequence, equal ones once. */
async function compileLayers(
  device: Device,
  stage: StageProgram,
  options: StageOptions,
): Promise<StageLayer[][]> {
  const compiled = new Map<LayerProgram, StageLayer["kernels"]>();
  for (const program of stage.programs) {
    const { forward, ...backward } = modelsToCompile(program, options);
    const kernels: Record<string, Kernel> = {};
    const first = await device.compile(forward);
    for (const [kind, model] of Object.entries(backward)) {
      kernels[kind] = await device.compile(model);
    }
    const overwrites: Kernel[] = [];
    for (const model of overwritesToCompile(program, options)) {
      overwrites.push(await device.compile(model));
    }
    compiled.set(program, { forward: first, overwrites, ...kernels });
  }
  return slicesOf(stage).map((layers) =>
    layers.map((layer) => {
      const kernels = compiled.get(layer.program);
      if (kernels) return { ...layer, kernels };
      throw new RangeError(`Cannot open stage: the program of ${layer.name} must exist`);
    })
  );
}
