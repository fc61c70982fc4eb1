/**
 * Summary of a run as plain data, for people and programs.
 *
 * @module
 */

import { activationBytes, elementCount, formatLayout, startsOf } from "../../kernels/internal.ts";
import type { StageProgram } from "../../kernels/mod.ts";
import type { Schedule } from "../../schedules/mod.ts";
import { optionsOf } from "../pipeline/stage_copies.ts";

import type { ComputedOn, CoreShare } from "./devices.ts";
import type { CompiledRun, RunMemory, WorkerMemory } from "./memory.ts";

/** One stage of the plan. */
export interface StagePlan {
  /** Its number. */
  readonly stage: number;
  /** The workers that hold a copy of it. */
  readonly workers: readonly number[];
  /** Names of its layers; a block that is whole on it has one. */
  readonly layers: readonly string[];
  /** Trained numbers on it. */
  readonly parameters: number;
  /** Its share of the model's estimated work, 0 to 1. */
  readonly costShare: number;
  /** Bytes of activations that one micro-batch keeps on it from F to B. */
  readonly activationBytes: number;
}

/** Summary of a run before it starts. */
export interface Plan {
  /** The model's name. */
  readonly model: string;
  /** Trained numbers in the whole model. */
  readonly parameters: number;
  /** The schedule's name. */
  readonly schedule: string;
  /** Name of the runtime. */
  readonly runtime: string;
  /** Name of the device. */
  readonly device: string;
  /** The names of the adapters, each once, of a device that has some. */
  readonly adapter?: string;
  /** The library of products in BF16, with its version. */
  readonly matrix?: string;
  /** Threads of each worker within an operation, and the cores that they share. */
  readonly share: CoreShare;
  /** Data-parallel replicas, each with separate workers. */
  readonly replicas: number;
  /** Micro-batches of a step in each data-parallel replica. */
  readonly microBatches: number;
  /** Bytes that each worker of a data-parallel replica will hold at its peak. */
  readonly memory: readonly WorkerMemory[];
  /** Bytes of all else that the run will hold, and of all together. */
  readonly run: RunMemory;
  /** The stages in order. */
  readonly stages: readonly StagePlan[];
  /** The layers of each as `layout` takes them: `E,4|4|4|3,H`. */
  readonly layout: string;
}

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
