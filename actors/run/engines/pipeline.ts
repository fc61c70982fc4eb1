/**
 * The pipeline: a supervisor and its workers, in one isolate or each worker in a Deno worker.
 *
 * @module
 */

import {
  cutIntoStages,
  flatLength,
  type ModelProgram,
  type StageProgram,
  type StageState,
  withAliases,
} from "../../../kernels/mod.ts";
import { pipelineWorkers } from "../../../schedules/mod.ts";
import type { TieEnd } from "../../commit/gradient_sync.ts";
import { eagerStages } from "../../commit/eager_stages.ts";
import { dealOf, type Engine, type EngineOptions, trainedTies, withoutAliases } from "./engine.ts";
import type { WorkerFault } from "../../pipeline/worker/faults.ts";
import { copiesOf } from "../../pipeline/layout.ts";
import { policyData } from "../../pipeline/policy_data.ts";
import type { StepOutcome, SupervisorMessage } from "../../pipeline/protocol.ts";
import { startSupervisor } from "./supervised.ts";
import {
  type Isolation,
  SUPERVISOR,
  type SupervisorInit,
} from "../../pipeline/supervisor/supervisor.ts";
import type { WorkerInit } from "../../pipeline/worker/worker.ts";

/** Full names of a stage's parameters. */
const namesOf = (program: StageProgram) => parametersOf(program).map(({ name }) => name);

const parametersOf = ({ layers, programs }: StageProgram) =>
  layers.flatMap(({ prefix, program }) =>
    programs[program]!.parameters.map(({ name, ...spec }) => ({ ...spec, name: prefix + name }))
  );

/** The part of a model's state that belongs to a stage. */
export function stateOf(program: StageProgram, state: StageState): StageState {
  const weights = new Map(
    namesOf(program).flatMap((name) => {
      const values = state.weights.get(name);
      return values ? [[name, values] as const] : [];
    }),
  );
  const moments = new Map(
    [...state.moments].filter(([key]) => weights.has(key.slice(0, key.lastIndexOf(".")))),
  );
  return { weights, moments };
}

/** What every worker of every data-parallel replica is made from. */
function workerInits(
  options: EngineOptions,
  isolate: Isolation,
  fault: WorkerFault | undefined,
): WorkerInit[] {
  const { model, schedule, scheduleOptions, replicas, device, halves, reduce, link } = options;
  const programs = cutIntoStages(model, schedule.stages);
  const states = withAliases(options.state, model.ties);
  const { stage } = options;
  const copies = copiesOf(schedule, replicas);
  const ties = tieEnds(programs, trainedTies(model));
  // Workers of one process share memory; over an emulated link, gradients travel, and so they do
  // where messages must tell all that happened.
  const isShared = reduce === "deterministic" && !link && copies[0]!.length > 1 &&
    isolate !== "process" && !options.observer && !options.system;
  const elementBytes = options.stage.precision === "fp16" ? 2 : 4;
  const shared = programs.map((program) => {
    if (!isShared) return undefined;
    const trained = parametersOf(program).filter(({ frozen }) => !frozen);
    const rowBytes = flatLength(trained) * elementBytes;
    return new SharedArrayBuffer(copies[0]!.length * rowBytes);
  });
  return Array.from({ length: replicas * schedule.workers }, (_, worker): WorkerInit => ({
    worker,
    replica: Math.floor(worker / schedule.workers),
    device,
    held: copies.flat().filter((copy) => copy.worker === worker).map((copy) => {
      const program = programs[copy.stage]!;
      return { copy, program, state: stateOf(program, states) };
    }),
    copies,
    pipelineWorkers: pipelineWorkers(schedule),
    policy: policyData(schedule, scheduleOptions, worker % schedule.workers),
    stage,
    halves,
    reduce: {
      algorithm: reduce === "fast" ? "fast" : "direct",
      coarsening: options.coarsening,
      shared,
    },
    ties,
    link,
    isTraced: options.isTraced,
    isRehearsed: options.isRehearsed,
    fault,
  }));
}

/** Both ends of every tie, by the stage that holds them. */
function tieEnds(programs: readonly StageProgram[], ties: ModelProgram["ties"]): TieEnd[][] {
  const stageOf = (name: string) =>
    programs.findIndex((program) => namesOf(program).includes(name));
  const ends = ties.flatMap(([canonical, alias]) => {
    const [first, second] = [canonical, alias].map((name) => ({ name, stage: stageOf(name) }));
    return [
      { ...first!, isAlias: false, other: second! },
      { ...second!, isAlias: true, other: first! },
    ];
  });
  return programs.map((_, stage) => ends.filter((end) => end.stage === stage));
}

/**
 * Starts the pipeline.
 *
 * @param isolate where the workers run.
 * @param fault what one of them is asked to suffer.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 */
export async function openPipeline(
  options: EngineOptions,
  isolate: Isolation,
  fault?: WorkerFault,
): Promise<Engine> {
  const { schedule, sync, clip } = options;
  const supervised: SupervisorInit = {
    workers: workerInits(options, isolate, fault),
    heapLimitMb: options.heapLimitMb,
    isolate,
    injectionLimit: schedule.injectionLimit,
    eagerStages: eagerStages(schedule, sync),
    clip,
  };
  const { ask, close } = await startSupervisor<SupervisorInit, SupervisorMessage>(
    options,
    SUPERVISOR,
    supervised,
  );
  return {
    step: (request) =>
      ask<StepOutcome>({
        type: "RunStep",
        request,
        deal: dealOf(options, request.microBatches.length),
      }),
    evaluate: (microBatches) => ask<Float32Array[]>({ type: "Evaluate", microBatches }),
    save: async () => withoutAliases(await ask<StageState>({ type: "Save" }), options.model.ties),
    close,
  };
}
