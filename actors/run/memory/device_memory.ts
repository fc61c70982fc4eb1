/**
 * A run that its devices cannot hold is refused before it begins: a tensor for which no buffer is
 * large enough, workers for whose adapter they are too many, more than the memory of this machine.
 *
 * @module
 */

import {
  assertMachineHolds,
  type DeviceChoice,
  deviceLimits,
  type DeviceName,
  DTYPE_BYTES,
  elementCount,
  largestValue,
  mebibytes,
  totalBytes,
} from "../../../kernels/mod.ts";
import type { CompiledRun } from "../compile_run.ts";
import { ISOLATE_BYTES } from "../options/sizes.ts";
import type { RuntimeName } from "../options/train_options.ts";
import { advise, changesOfMemory, changesOfTensors, type LargeRun } from "./changes.ts";

/** A run, where its actors are. */
export interface PlacedRun extends LargeRun {
  readonly runtime: RuntimeName;
  /** Data-parallel replicas. */
  readonly replicas: number;
}

/**
 * Refuses a run that its devices cannot hold.
 *
 * @throws {RangeError} saying what is too large, where, and what would fit.
 */
export function assertDevicesHold(run: PlacedRun): void {
  assertTensors(run);
  // A serial run has each stage once, whatever its workers would hold.
  if (run.runtime !== "serial") {
    for (const [device, workers] of workersByDevice(run)) assertAdapter(run, device, workers);
  }
  assertMachine(run);
}

/** A tensor of a run. */
interface NamedTensor {
  readonly name: string;
  readonly byteLength: number;
}

/** The largest tensor of a model: what one of its kernels reads or computes, or what steps a parameter. */
function largestTensor({ model }: CompiledRun, name: DeviceName): NamedTensor {
  const { programs, layers } = model;
  const values = programs.map(({ models, overwrites = [] }) =>
    [...Object.values(models), ...overwrites.map(({ model }) => model)].flatMap((one) =>
      largestValue(name, one) ?? []
    )
  );
  const tensors = layers.flatMap(
    ({ name: layer, prefix, program, slices = [program] }): NamedTensor[] => {
      const trained = programs[program]!.parameters.filter(({ frozen }) => !frozen);
      const weights = trained.map(({ name, shape }) => {
        const byteLength = elementCount(shape) * DTYPE_BYTES.f32;
        return { name: `the parameter ${prefix}${name} [${shape}]`, byteLength };
      });
      return [
        ...weights,
        ...slices.flatMap((one) => values[one]!).map(({ name, shape, byteLength }) => ({
          name: `the value ${name} [${shape}] of layer ${layer}`,
          byteLength,
        })),
      ];
    },
  );
  return tensors.reduce((most, one) => one.byteLength > most.byteLength ? one : most);
}

function assertTensors(run: PlacedRun): void {
  const { devices, compiled } = run, { name } = devices[0];
  const { where, tensorBytes } = devices.map(deviceLimits)
    .reduce((least, one) => one.tensorBytes < least.tensorBytes ? one : least);
  if (tensorBytes === Infinity) return;
  const tensor = largestTensor(compiled, name);
  if (tensor.byteLength <= tensorBytes) return;
  const advice = advise(
    run,
    changesOfTensors(run),
    tensorBytes,
    (compiled) => largestTensor(compiled, name).byteLength,
    "take a smaller model",
  );
  throw new RangeError(
    `Cannot train on ${where}: each tensor must fit into its largest buffer, ${
      mebibytes(tensorBytes, Math.floor)
    }, received ${mebibytes(tensor.byteLength)} for ${tensor.name}; ${advice}`,
  );
}

/** The workers of each device, those of all replicas. */
function workersByDevice({ devices, replicas, schedule }: PlacedRun): Map<DeviceChoice, number[]> {
  const found = new Map<DeviceChoice, number[]>();
  for (let worker = 0; worker < replicas * schedule.workers; worker++) {
    const device = devices[worker % devices.length]!;
    found.set(device, [...found.get(device) ?? [], worker]);
  }
  return found;
}

function assertAdapter(run: PlacedRun, device: DeviceChoice, workers: readonly number[]): void {
  const { where, memoryBytes: limit } = deviceLimits(device), { compiled, schedule } = run;
  const measure = ({ memory }: CompiledRun) =>
    workers.reduce((sum, one) => sum + totalBytes(memory[one % schedule.workers]!.device), 0);
  const bytes = measure(compiled);
  if (bytes <= limit) return;
  const advice = advise(
    run,
    changesOfMemory(run),
    limit,
    measure,
    "take more adapters, a smaller micro-batch or a smaller model",
  );
  const who = workers.length === 1 ? `worker ${workers[0]}` : `workers ${workers.join(", ")}`;
  throw new RangeError(
    `Cannot train on ${where}: what its workers hold must fit into its memory, ${
      mebibytes(limit, Math.floor)
    }, received ${mebibytes(bytes)} for ${who}; ${advice}`,
  );
}

/** What is on a GPU with memory of its own is in none of this machine. */
function assertMachine({ devices, replicas, runtime, schedule, compiled }: PlacedRun): void {
  let bytes = 0;
  for (let worker = 0; worker < replicas * schedule.workers; worker++) {
    const { device, host } = compiled.memory[worker % schedule.workers]!;
    const { isHostMemory } = deviceLimits(devices[worker % devices.length]!);
    bytes += totalBytes(host) + (isHostMemory ? totalBytes(device) : 0);
    if (runtime === "workers") bytes += ISOLATE_BYTES;
  }
  assertMachineHolds("Cannot train", bytes);
}
