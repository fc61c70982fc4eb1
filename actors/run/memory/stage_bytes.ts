/**
 * What each stage of a compiled model holds, as schedules count it: the one way from the plans of
 * kernels to those that foresee steps.
 *
 * @module
 */

import {
  activationBytes,
  type DeviceName,
  DTYPE_BYTES,
  elementCount,
  hasFreeViews,
  hasOwnMemory,
  planMemory,
  stageBorder,
  type StageProgram,
} from "../../../kernels/mod.ts";
import type { StageMemory } from "../../../schedules/mod.ts";
import { type CompiledStages, optionsOf } from "../../pipeline/stage_copies.ts";

/**
 * The bytes of each stage. `scheduleMemory` makes of them what `CompiledRun.memory` plans:
 * that is its `held`, less the arrays of messages, which lie beside the stages.
 *
 * Activations that are recomputed are in memory that all micro-batches of a stage share, so that they
 * are work of an action; W frees all that a micro-batch keeps.
 *
 * @param device whose own memory is counted alone, where it has some.
 */
export function stageBytes(
  compiled: CompiledStages & { readonly halves: 1 | 2 },
  device?: DeviceName,
): StageMemory[] {
  const { programs, halves } = compiled;
  const views = { hasFreeViews: device === undefined || hasFreeViews(device), versions: 1 };
  const countsHost = device === undefined || !hasOwnMemory(device);
  return programs.map((program, stage): StageMemory => {
    const planned = { ...optionsOf(compiled, stage), ...views };
    const { perMicroBatch, shared } = activationBytes(program, planned);
    const { device: held, host } = planMemory(program, { ...planned, slots: 0 });
    const atHost = countsHost ? host.master + host.moments : 0;
    return {
      weightBytes: held.weights,
      gradientBytes: held.gradients,
      optimizerBytes: held.master + held.moments + held.buckets + held.other + atHost,
      keptBytes: halves * perMicroBatch,
      workBytes: shared,
      messageBytes: outputBytes(program, halves),
    };
  });
}

/** Bytes of what a stage sends on for a micro-batch, to the next stage or to others. */
export function outputBytes(program: StageProgram, halves: number): number {
  const { programs, layers, slicing } = program;
  const runs = halves * (slicing?.slices ?? 1);
  if (programs[layers.at(-1)!.program]!.isLoss) return 0;
  return stageBorder(program).outputs.reduce(
    (sum, { dtype, shape }) => sum + runs * elementCount(shape) * DTYPE_BYTES[dtype],
    0,
  );
}
