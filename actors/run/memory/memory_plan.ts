/**
 * The memory of every worker, byte by byte, before the run: what it will hold at its peak, whether
 * that is within a limit, and what would bring it there.
 *
 * [Note: what is counted] Weights, gradients, FP32 master weights, moments, activations of the
 * micro-batches that the schedule has in flight, and optimizer buckets, as {@linkcode planMemory}
 * says for each stage. All else that a run holds is in {@linkcode planRunMemory}.
 *
 * @module
 */

import {
  type DeviceName,
  hasFreeViews,
  hasOwnMemory,
  planMemory,
  type StageMemory,
  totalBytes,
} from "../../../kernels/mod.ts";
import { type CompiledStages, optionsOf } from "../../pipeline/stage_copies.ts";
import { sumMemory } from "../../pipeline/sum_memory.ts";
import type { Schedule } from "../../../schedules/mod.ts";
import { isBound, slotsOf } from "./slots.ts";

/** Bytes of one worker. */
export interface WorkerMemory extends StageMemory {
  /** The worker, within a data-parallel replica: all replicas are alike. */
  readonly worker: number;
  /** Whether it may hold less: then the order of messages decides how much. */
  readonly isBound: boolean;
}

/** Bytes that a limit counts: those of the device, and the host's where the device has no own. */
export function limitedBytes({ device, host }: StageMemory, name: DeviceName): number {
  return totalBytes(device) + (hasOwnMemory(name) ? 0 : totalBytes(host));
}

/** All bytes of some stages or workers, wherever they lie. */
export function totalMemory(memory: readonly StageMemory[]): number {
  return memory.reduce((sum, { device, host }) => sum + totalBytes(device) + totalBytes(host), 0);
}

/**
 * Plans the memory of each worker of a schedule.
 *
 * @param compiled its stages, and runs of the kernels for each micro-batch: each keeps activations of
 * its own.
 */
export function planWorkers(
  compiled: CompiledStages & { readonly halves: 1 | 2 },
  schedule: Schedule,
  device: DeviceName | undefined,
): WorkerMemory[] {
  const { programs, halves } = compiled;
  return schedule.placement.map((held, worker) => {
    const versions = schedule.weightVersions[worker] ?? 1;
    const stages = held.map(({ stage, pipeline }) =>
      planMemory(programs[stage]!, {
        ...optionsOf(compiled, stage),
        hasFreeViews: device === undefined || hasFreeViews(device),
        versions,
        slots: withHalves(slotsOf(schedule, worker, stage, pipeline), halves),
      })
    );
    return { worker, isBound: isBound(schedule, worker), ...sumMemory(stages) };
  });
}

/** Each half of a micro-batch has a slot of its own; slices have theirs already. */
const withHalves = (slots: ReturnType<typeof slotsOf>, halves: number) =>
  typeof slots === "number" ? halves * slots : slots;
