/**
 * Summary of a run as plain data, for people and programs.
 *
 * @module
 */

import type { CoreShare, Plan, RunMemory, StagePlan } from "../options/train_events.ts";
import { activationBytes, elementCount, formatLayout, startsOf } from "../../kernels/internal.ts";
import type { StageProgram } from "../../kernels/mod.ts";
import type { Schedule } from "../../schedules/mod.ts";
import { optionsOf } from "../pipeline/stage_copies.ts";

import type { ComputedOn } from "./devices.ts";
import type { CompiledRun } from "./memory.ts";

/** Describes a run. */
export function describePlan(
  compiled: CompiledRun,
  schedule: Schedule,
  { runtime, on: { device, adapter, matrix }, share, replicas, run }: {
    runtime: string;
    on: ComputedOn;
    share: CoreShare;
    replicas: number;
    run: RunMemory;
  },
): Plan {
  const { model, memory } = compiled;
  const total = model.costs.reduce((sum, cost) => sum + cost, 0);
  const costOf = ({ programs, layers }: StageProgram) =>
    layers.flatMap(({ program, slices = [program] }) => slices).reduce((sum, program) => {
      const { forward, backward } = programs[program]!.cost;
      return sum + forward + backward;
    }, 0);
  const stages = compiled.programs.map((program, stage): StagePlan => ({
    stage,
    workers: schedule.placement.flatMap((held, worker) =>
      held.some((one) => one.stage === stage) ? [worker] : []
    ),
    layers: namesOf(program.layers, model.layers),
    parameters: program.layers.reduce(
      (sum, { program: index }) =>
        sum +
        program.programs[index]!.parameters.reduce(
          (count, { shape }) => count + elementCount(shape),
          0,
        ),
      0,
    ),
    costShare: costOf(program) / total,
    activationBytes: bytesOfMicroBatch(activationBytes(program, optionsOf(compiled, stage))),
  }));
  return {
    model: model.name,
    parameters: stages.reduce((sum, { parameters }) => sum + parameters, 0),
    schedule: schedule.name,
    runtime,
    device,
    ...adapter !== undefined && { adapter },
    ...matrix !== undefined && { matrix },
    share,
    replicas,
    microBatches: schedule.microBatches,
    memory,
    run,
    stages,
    layout: formatLayout(model.layers, startsOf(model, schedule.stages)),
  };
}

const bytesOfMicroBatch = (bytes: ReturnType<typeof activationBytes>) =>
  bytes.perMicroBatch + bytes.perBackward;

/** The names of a stage's layers; where all of a block is there, that of the block. */
function namesOf(held: StageProgram["layers"], all: StageProgram["layers"]): readonly string[] {
  const partsOf = (layers: StageProgram["layers"], of: string) =>
    layers.filter(({ block }) => block === of).length;
  return held.flatMap(({ name, block }, i) => {
    if (block === undefined || partsOf(held, block) < partsOf(all, block)) return [name];
    return held[i - 1]?.block === block ? [] : [block];
  });
}
