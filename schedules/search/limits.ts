/** The limits of a search: how much memory a schedule may take. */

import { analyze } from "../analysis/analyze.ts";
import { withRecomputation } from "../analysis/recomputation.ts";
import { type Costs, type StageTimes, stageTimes } from "../costs.ts";
import {
  bidirectional,
  linear,
  looped,
  type Place,
  type ScheduleOptions,
  wave,
} from "../define.ts";
import {
  activationParts,
  hostTable,
  type ListedSchedule,
  pipelineWorkers,
  type Schedule,
} from "../schedule.ts";
import { withLists } from "../simulator/simulate.ts";
import type { SkipEdge } from "../skip_edges.ts";

/** A schedule that keeps the limits. */
export interface Found {
  /** The schedule, without recomputations. */
  readonly schedule: ListedSchedule;
  /** The time of a step, with the recomputations that the search is for. */
  readonly makespan: number;
}

/** What the schedules of a search are held to. */
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
 * @param isRecomputed whether activations live from a recomputation on: forwards then have no limit.
 */
export function partLimits(
  schedule: Schedule,
  activations: number,
  isRecomputed = false,
): number[] {
  const parts = isRecomputed ? Infinity : activationParts(schedule, activations);
  return new Array(schedule.workers).fill(parts);
}

/** Whether no worker of the schedule holds more weights than it may. */
export function keepsWeights(schedule: Schedule, { weights }: Limits): boolean {
  const share = pipelineWorkers(schedule) / schedule.stages;
  return schedule.placement.every((held, worker) =>
    held.length * share * (schedule.weightVersions[worker] ?? 1) <= weights + 1e-9
  );
}

/** The schedule and its time if it keeps the limits, else nothing. */
export function keepsLimits(schedule: Schedule, limits: Limits): Found[] {
  if (!keepsWeights(schedule, limits)) return [];
  const listed = withLists(schedule, limits.costs);
  const run = limits.isRecomputed ? withRecomputation(listed) : listed;
  const { makespan, peakActivations } = analyze(run, limits.costs);
  const fits = peakActivations.every((peak) => peak <= limits.activations + 1e-9);
  if (!fits) return [];
  limits.found?.(run, makespan);
  return [{ schedule: listed, makespan }];
}

/** The most stages on a worker. */
const CHUNKS_MAX = 4;

/** The most stages of which every placement is searched. */
const STAGES_MAX = 6;

/**
 * How many stages a worker may hold. The slices of the model that the costs are given for say how
 * fine it may be cut; where there are none, it is cut in two for each worker at most.
 */
export function chunkCounts({ workers, chunks, costs = {} }: ScheduleOptions): number[] {
  if (chunks !== undefined) return [chunks];
  const lengths = sliceCounts(costs);
  if (lengths.length === 0) return [1, 2];
  const counts = Array.from({ length: CHUNKS_MAX }, (_, i) => i + 1);
  return counts.filter((count) => lengths.every((length) => length % (workers * count) === 0));
}

/** How many waves the stages of a worker may lie in, two of them in each. */
export function waveCounts(options: ScheduleOptions): number[] {
  if (options.waves !== undefined) return [options.waves];
  return chunkCounts(options).filter((count) => count % 2 === 0).map((count) => count / 2);
}

/** The number of slices of each cost that is given by slice. Costs of skip edges have none. */
function sliceCounts({ skip: _, ...costs }: Costs): number[] {
  return Object.values(costs).flatMap((cost) => Array.isArray(cost) ? [cost.length] : []);
}

/** The regular places: in a line, in loops, in waves, in both directions. */
export function regularPlaces(options: ScheduleOptions): Place[] {
  const counts = chunkCounts(options);
  return [
    ...counts.includes(1) ? [linear(options)] : [],
    ...counts.filter((chunks) => chunks > 1).map((chunks) => looped({ ...options, chunks })),
    ...waveCounts(options).map((waves) => wave({ ...options, waves })),
    { ...bidirectional(options) },
  ];
}

/** Every other place of as many stages on each worker, where there are few. */
export function irregularPlaces(options: ScheduleOptions): Place[] {
  const { workers } = options;
  return chunkCounts(options).filter((chunks) => chunks > 1 && chunks * workers <= STAGES_MAX)
    .flatMap((chunks) => [...hostings(workers, chunks)].map(placeOf));
}

/** A place by the worker of each stage. */
export function placeOf(hosts: readonly number[]): Place {
  return { stages: hosts.length, workerOf: (stage) => hosts[stage] as number };
}

/** Every way to give workers `chunks` stages each, but for the names of the workers. */
function* hostings(workers: number, chunks: number, hosts: number[] = []): Iterable<number[]> {
  if (hosts.length === workers * chunks) yield hosts;
  const known = hosts.reduce((most, worker) => Math.max(most, worker + 1), 0);
  for (let worker = 0; worker < Math.min(workers, known + 1); worker++) {
    if (hosts.filter((other) => other === worker).length === chunks) continue;
    yield* hostings(workers, chunks, [...hosts, worker]);
  }
}

/** What is to be scheduled. */
export interface Workload {
  /** The number of workers. */
  readonly workers: number;
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The micro-batches of the step. */
  readonly microBatches: number;
  /** The worker of each stage of each replica, at index `replica * stages + stage`. */
  readonly hosts: Int32Array;
  /** For each micro-batch, the replica that computes it. */
  readonly replicaOf: readonly number[];
  /** The skip edges; none unless given. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** What the stages cost. */
  readonly times: StageTimes;
}

/** What a schedule does, without its order. */
export function workloadOf(schedule: Schedule, costs: Costs = {}): Workload {
  const { workers, stages, microBatches, replicaOf, edges } = schedule;
  const times = stageTimes(schedule, costs);
  return { workers, stages, microBatches, replicaOf, hosts: hostTable(schedule), edges, times };
}
