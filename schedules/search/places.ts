/** The places of a search: which worker holds which stages. */

import type { ScheduleOptions } from "../definition/options.ts";
import { bidirectional, linear, looped, wave } from "../definition/placements.ts";
import type { Place } from "../definition/rule.ts";
import type { Costs } from "../execution/costs.ts";

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
