/**
 * What the workers of a run are made from.
 *
 * @module
 */

import {
  cutIntoStages,
  flatLength,
  hasFreeViews,
  type StageProgram,
  withAliases,
} from "../../../kernels/mod.ts";
import { pipelineWorkers, recomputedStages } from "../../../schedules/mod.ts";
import { copiesOf } from "../../pipeline/layout.ts";
import { policyData } from "../../pipeline/policy_data.ts";
import { UPDATE_POLICIES } from "../../pipeline/update_policy.ts";
import type { WorkerFault } from "../../pipeline/worker/faults.ts";
import type { WorkerInit } from "../../pipeline/worker/worker_init.ts";
import type { PlaceName } from "../../runtime/mod.ts";
import { transportTo } from "../place.ts";
import type { EngineOptions } from "./engine.ts";
import { stageParameters, stateOf } from "./stage_parameters.ts";
import { tieEnds, trainedTies } from "./tied_parameters.ts";

/** What a choice means to the copies of a stage. */
const ALGORITHMS = { deterministic: "direct", fast: "fast", mpi: "collective" } as const;

/** What every worker of every data-parallel replica is made from. */
export function workerInits(
  options: EngineOptions,
  isolate: PlaceName,
  fault: WorkerFault | undefined,
): WorkerInit[] {
  const { model, schedule, scheduleOptions, replicas, devices, halves, reduce, link } = options;
  const programs = cutIntoStages(model, schedule.stages);
  const states = withAliases(options.state, model.ties);
  const copies = copiesOf(schedule, replicas);
  const ties = tieEnds(programs, trainedTies(model));
  const shared = sharedRows(options, isolate, programs, copies[0]!.length);
  const { isFlushed } = UPDATE_POLICIES[schedule.updates], recomputed = recomputedStages(schedule);
  const stageOf = (worker: number) =>
    isFlushed ? options.stage : { ...options.stage, versions: schedule.weightVersions[worker]! };
  return Array.from({ length: replicas * schedule.workers }, (_, worker): WorkerInit => ({
    worker,
    replica: Math.floor(worker / schedule.workers),
    device: devices[worker % devices.length]!,
    held: copies.flat().filter((copy) => copy.worker === worker).map((copy) => {
      const program = programs[copy.stage]!, state = stateOf(program, states);
      return { copy, program, ...recomputed.has(copy.stage) && { isRecomputed: true }, state };
    }),
    copies,
    pipelineWorkers: pipelineWorkers(schedule),
    updates: schedule.updates,
    policy: policyData(schedule, scheduleOptions, worker % schedule.workers),
    stage: stageOf(worker),
    halves,
    reduce: {
      algorithm: ALGORITHMS[reduce],
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

/** What decides where gradients of copies are added. */
export interface RowOptions
  extends Pick<EngineOptions, "reduce" | "link" | "system" | "devices" | "transport"> {
  /** Whoever writes a journal, or what of: then messages must tell all that happens. */
  readonly journal?: unknown;
}

/**
 * Whether workers add the gradients of a stage's copies in memory that all of them see, where it is
 * the host that adds. Over an emulated link gradients travel, and so they do where messages must tell
 * all that happened.
 */
export function sharesRows(
  options: RowOptions,
  isolate: PlaceName,
  copies: number,
): boolean {
  const { reduce, link, journal, system, devices: [device] } = options;
  return reduce === "deterministic" && !link && copies > 1 && !journal && !system &&
    hasFreeViews(device.name) && transportTo(isolate, options)?.sharesMemory !== false;
}

/** The memory in which workers add their gradients, for each stage. */
function sharedRows(
  options: EngineOptions,
  isolate: PlaceName,
  programs: readonly StageProgram[],
  copies: number,
): (SharedArrayBuffer | undefined)[] {
  const { stage, observer: journal } = options;
  const isShared = sharesRows({ ...options, journal }, isolate, copies);
  const elementBytes = stage.precision === "fp16" ? 2 : 4;
  return programs.map((program) => {
    if (!isShared) return undefined;
    const trained = stageParameters(program).filter(({ frozen }) => !frozen);
    return new SharedArrayBuffer(copies * flatLength(trained) * elementBytes);
  });
}
