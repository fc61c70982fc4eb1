/** Skip edges in the mailboxes and the memory of workers. */

import { type ActionList, KIND } from "../action_list.ts";
import { runAround } from "../execute.ts";
import { hostTable, type ListedSchedule } from "../schedule.ts";
import {
  leaving,
  type SkipEdge,
  type SkipRoute,
  type StageRoutes,
  stageRoutes,
} from "../skip_edges.ts";

/**
 * Values that arrive at a worker and leave it, in bytes or any other unit. A value for another stage
 * of the same worker exists from the start of the action that makes it.
 */
export interface SkipLevels {
  /** The sum that has arrived by the end of each of its actions. */
  readonly come: ArrayLike<number>;
  /** For each stage, the amount that the end of its B or I frees for a whole micro-batch. */
  readonly freed: ArrayLike<number>;
}

/** The size of a message over a route, for a whole micro-batch. */
export type SizeOf = (route: SkipRoute) => number;

/** Parts to look at; in larger steps all values count as if they arrived together. */
const PARTS_MAX = 2 ** 25;

/** The bytes of the values that take a route. */
export function bytesOf(edges: readonly SkipEdge[]): SizeOf {
  return (route) => route.edges.reduce((sum, edge) => sum + (edges[edge]!.bytes ?? 0), 0);
}

/** The amount that the backward of each stage frees. */
export function freedBy(routes: readonly StageRoutes[], sizeOf: SizeOf): number[] {
  return routes.map(({ toForward, toBackward }) =>
    [...toForward, ...toBackward].reduce((sum, route) => sum + sizeOf(route), 0)
  );
}

/** An arrival at a worker. */
export interface Received {
  readonly time: number;
  readonly size: number;
}

/** The sum that has arrived by the end of each action, for known times of arrival. */
export function comeByTimes(ends: ArrayLike<number>, received: readonly Received[]): Float64Array {
  const sorted = received.toSorted((a, b) => a.time - b.time), come = new Float64Array(ends.length);
  let next = 0, sum = 0;
  for (let index = 0; index < ends.length; index++) {
    for (; next < sorted.length && sorted[next]!.time <= ends[index]!; next++) {
      sum += sorted[next]!.size;
    }
    come[index] = sum;
  }
  return come;
}

/**
 * The levels of each worker at their highest, however long actions and messages take: as if each
 * worker in turn were the slowest. Undefined for a chain.
 */
export function levelsOf(schedule: ListedSchedule, sizeOf: SizeOf): SkipLevels[] | undefined {
  const routes = stageRoutes(schedule.stages, schedule.edges);
  if (routes === undefined) return undefined;
  const { lists, placement } = schedule, freed = freedBy(routes, sizeOf);
  // It would take too long to simulate each worker as the slowest.
  const parts = lists.reduce((sum, { partCount }) => sum + partCount, 0);
  const isTooLarge = lists.length * parts > PARTS_MAX;
  return lists.map((list, worker) => {
    const receives = placement[worker]!.some(({ stage }) => freed[stage]! > 0);
    if (!receives) return { come: new Float64Array(list.length), freed };
    if (!isTooLarge) {
      return { come: comeBySlowness(schedule, worker, routes, sizeOf), freed };
    }
    let all = 0;
    for (let part = 0; part < list.partCount; part++) all += freedAt(list, part, freed);
    return { come: new Float64Array(list.length).fill(all), freed };
  });
}

/** The sum that may have arrived by the end of each action of a worker if all others are fast. */
function comeBySlowness(
  schedule: ListedSchedule,
  slow: number,
  routes: readonly StageRoutes[],
  sizeOf: SizeOf,
): Float64Array {
  const hosts = hostTable(schedule), { stages, pipelineOf } = schedule;
  const come = new Float64Array(schedule.lists[slow]!.length);
  runAround(schedule, slow, ({ kind, stage, microBatch, share }, before) => {
    const first = pipelineOf[microBatch]! * stages;
    for (const route of leaving(routes, kind, stage)) {
      if (hosts[first + route.to] !== slow) continue;
      come[before]! += share * sizeOf(route);
    }
  });
  let sum = 0;
  return come.map((size) => sum += size);
}

/** The peak of the levels of a worker. */
export function peakOfSkips(list: ActionList, { come, freed }: SkipLevels): number {
  let peak = 0, gone = 0;
  for (let index = 0; index < list.length; index++) {
    peak = Math.max(peak, come[index]! - gone);
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      gone += freedAt(list, part, freed);
    }
  }
  return peak;
}

/** The amount that the end of a part frees. */
export function freedAt(list: ActionList, part: number, freed: ArrayLike<number>): number {
  const kind = list.kindAt(part);
  if (kind !== KIND.B && kind !== KIND.I) return 0;
  return freed[list.stageAt(part)]! / list.countAt(part);
}
