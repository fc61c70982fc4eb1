/**
 * Opens a stage: its models are compiled, its memory is allocated, and one is bound to the other.
 *
 * @module
 */

import type { Device } from "../devices/device.ts";
import type { StageProgram } from "../compile/stage_program.ts";
import { openGradientSums } from "../optimizer/gradient_sums.ts";
import { openGradientNorms } from "../optimizer/gradient_norms.ts";
import { openOptimizer } from "../optimizer/optimizer.ts";
import { openFrozen } from "./frozen.ts";
import { openInFlight } from "./in_flight.ts";
import { allocateResident } from "./resident.ts";
import { parameterPorts, type StageLayer } from "./slot.ts";
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
  const layers = await compileLayers(device, program, options);
  const resident = allocateResident(device, layers, options), { store } = resident;
  const frozen = openFrozen(device, resident.frozen, resident.precision);
  const optimizer = await openOptimizer(device, store, options.optimizer, resident.optimizer);
  const norms = await openGradientNorms(device, store, resident.norms);
  const sums = resident.sums && openGradientSums(device, store, resident.sums);
  const inFlight = openInFlight(device, layers, options, {
    parameters: store.versions.map((_, i) => parameterPorts(layers, store, frozen.tensors, i)),
    lossScale: resident.lossScale,
  });
  const parts = { device, layers, resident, frozen, optimizer, norms, sums, inFlight, options };
  return new Stage(parts);
}

async function compileLayers(
  device: Device,
  { programs, layers }: StageProgram,
  { backward, recomputeInterval }: StageOptions,
): Promise<StageLayer[]> {
  const compiled: Pick<StageLayer, "program" | "kernels">[] = [];
  const isSplit = backward === "split";
  for (const program of programs) {
    const { models } = program;
    const kernels: StageLayer["kernels"] = {
      forward: await device.compile(models.forward),
      ...backward !== "never" && models.backward && { B: await device.compile(models.backward) },
      ...isSplit && models.input && { I: await device.compile(models.input) },
      // With an interval, W is B again.
      ...isSplit && models.weight && !recomputeInterval &&
        { W: await device.compile(models.weight) },
    };
    compiled.push({ program, kernels });
  }
  return layers.map(({ program: index, ...named }) => {
    const one = compiled[index];
    if (!one) throw new RangeError(`Cannot open stage: program ${index} must exist`);
    return { ...named, ...one };
  });
}
