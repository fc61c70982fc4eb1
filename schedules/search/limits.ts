/** Limits, placements and workloads of a search. */

import { analyze } from "../analysis/analyze.ts";
import { withRecomputation } from "../analysis/recomputation.ts";
import { type Costs, type StageTimes, stageTimes } from "../costs.ts";
import type { StepShape } from "../dependencies.ts";
import {
  bidirectional,
  linear,
  looped,
  type Place,
  type ScheduleOptions,
  wave,
} from "../define.ts";
import { activationParts, hostTable, pipelineWorkers, type Schedule } from "../schedule.ts";
import { withLists } from "../simulator/simulate.ts";

/** Costs and limits of a search. */
export interface Limits {
  readonly costs: Costs;
  readonly activations: number;
  readonly weights: number;
  readonly isRecomputed?: boolean;
  readonly found?: ScheduleOptions["found"];
}

/**
 * For each worker, a limit in micro-batches of 1/P of the model as one of (stage, micro-batch).
 *
 * @param isRecomputed True if activations live from a recomputation on: forwards then have no limit.
 */
export function partLimits(schedule: Schedule, activations: number, isRecomputed = false) {
  const parts = isRecomputed ? Infinity : activationParts(schedule, activations);
  return new Array<number>(schedule.workers).fill(parts);
}

/** Returns true if no worker exceeds the limit of weights. */
export function keepsWeights(schedule: Schedule, { weights }: Limits): boolean {
  const share = pipelineWorkers(schedule) / schedule.stages;
  return schedule.placement.every((held, worker) =>
    held.length * share * (schedule.weightVersions[worker] ?? 1) <= weights + 1e-9
  );
}

/**
 * The schedule without recomputations and its time, with them if the search is for them, if it keeps the
 * limits: as a list of one or none.
 */
export function keepsLimits(schedule: Schedule, limits: Limits) {
  if (!keepsWeights(schedule, limits)) return [];
  const listed = withLists(schedule, limits.costs);
  const run = limits.isRecomputed ? withRecomputation(listed) : listed;
  const { makespan, peakActivations } = analyze(run, limits.costs);
  const fits = peakActivations.every((peak) => peak <= limits.activations + 1e-9);
  if (!fits) return [];
  limits.found?.(run, makespan);
  return [{ schedule: listed, makespan }];
}

/** A schedule within the limits. */
export type Found = ReturnType<typeof keepsLimits>[number];

/** The most stages on a worker. */
const CHUNKS_MAX = 4;

/** The most stages for which every placement is searched. */
const STAGES_MAX = 6;

/**
 * The possible numbers of stages of a worker. Costs by slice of the model determine how fine it may be
 * cut; otherwise it is cut in at most two for each worker.
 */
export function chunkCounts({ workers, chunks, costs = {} }: ScheduleOptions): number[] {
  if (chunks !== undefined) return [chunks];
  // Costs of skip edges have no slices.
  const { skip: _, ...bySlice } = costs;
  const lengths = Object.values(bySlice).flatMap((one) => Array.isArray(one) ? [one.length] : []);
  if (lengths.length === 0) return [1, 2];
  const counts = Array.from({ length: CHUNKS_MAX }, (_, i) => i + 1);
  return counts.filter((count) => lengths.every((length) => length % (workers * count) === 0));
}

/** The possible numbers of waves of the stages of a worker, with two stages in each. */
export function waveCounts(options: ScheduleOptions): number[] {
  if (options.waves !== undefined) return [options.waves];
  return chunkCounts(options).filter((count) => count % 2 === 0).map((count) => count / 2);
}

/** The regular placements: in a line, in loops, in waves, in both directions. */
export function regularPlaces(options: ScheduleOptions): Place[] {
  const counts = chunkCounts(options);
  return [
    ...counts.includes(1) ? [linear(options)] : [],
    ...counts.filter((chunks) => chunks > 1).map((chunks) => looped({ ...options, chunks })),
    ...waveCounts(options).map((waves) => wave({ ...options, waves })),
    { ...bidirectional(options) },
  ];
}

/** All other placements with the same numbers of stages on each worker, for few stages. */
export function irregularPlaces(options: ScheduleOptions): Place[] {
  const { workers } = options;
  return chunkCounts(options).filter((chunks) => chunks > 1 && chunks * workers <= STAGES_MAX)
    .flatMap((chunks) => [...hostings(workers, chunks)].map(placeOf));
}

/** A placement by the worker of each stage. */
export function placeOf(hosts: readonly number[]): Place {
  return { stages: hosts.length, workerOf: (stage) => hosts[stage]! };
}

/** Every assignment of `chunks` stages to each worker, up to the names of the workers. */
function* hostings(workers: number, chunks: number, hosts: number[] = []): Iterable<number[]> {
  if (hosts.length === workers * chunks) yield hosts;
  const known = hosts.reduce((most, worker) => Math.max(most, worker + 1), 0);
  for (let worker = 0; worker < Math.min(workers, known + 1); worker++) {
    if (hosts.filter((other) => other === worker).length === chunks) continue;
    yield* hostings(workers, chunks, [...hosts, worker]);
  }
}

/** The stages, micro-batches and placement of a step, with its costs. */
export interface Workload extends StepShape {
  /** The number of workers. */
  readonly workers: number;
  /** The costs of the stages. */
  readonly times: StageTimes;
}

/** The workload of a schedule, without its order. */
export function workloadOf(schedule: Schedule, costs: Costs = {}): Workload {
  const { workers, stages, microBatches, pipelineOf, edges } = schedule;
  const times = stageTimes(schedule, costs);
  return { workers, stages, microBatches, pipelineOf, hosts: hostTable(schedule), edges, times };
}
