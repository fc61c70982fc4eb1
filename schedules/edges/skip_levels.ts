/**
 * What skip edges make a worker hold: values from when they come to the end of the backward of the
 * stage that uses them, gradients to that of the stage that they come to.
 */

import { type ActionList, KIND } from "../actions/action_list.ts";
import { runAround } from "../execution/slow_worker.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import type { SkipEdge } from "./skip_edge.ts";
import { leaving, type StageWays, stageWays, type Way } from "./ways.ts";

/**
 * What comes and goes at a worker, in bytes or any other unit. What its own actions make for other
 * stages of it is there while they run.
 */
export interface SkipLevels {
  /** All that has come by the end of each of its actions. */
  readonly come: ArrayLike<number>;
  /** For each stage, what the end of its B or I frees of a whole micro-batch. */
  readonly freed: ArrayLike<number>;
}

/** The size of what takes a way, of a whole micro-batch. */
export type SizeOf = (way: Way) => number;

/** Parts that are looked at, beyond which all that comes in a step counts as if it came at once. */
const PARTS_MAX = 2 ** 25;

/** The bytes of the values that take a way. */
export function bytesOf(edges: readonly SkipEdge[]): SizeOf {
  return (way) => way.edges.reduce((sum, edge) => sum + (edges[edge]!.bytes ?? 0), 0);
}

/** What the backward of each stage frees. */
export function freedBy(ways: readonly StageWays[], sizeOf: SizeOf): number[] {
  return ways.map(({ toForward, toBackward }) =>
    [...toForward, ...toBackward].reduce((sum, way) => sum + sizeOf(way), 0)
  );
}

/** Something that comes to a worker at a time. */
export interface Received {
  readonly time: number;
  readonly size: number;
}

/** What has come by the end of each action, where it is known when each comes. */
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
 * What each worker holds at the most, however long actions and messages take: as if each in turn were
 * the slowest. Undefined for a chain.
 */
export function levelsOf(schedule: ListedSchedule, sizeOf: SizeOf): SkipLevels[] | undefined {
  const ways = stageWays(schedule.stages, schedule.edges);
  if (ways === undefined) return undefined;
  const { lists, placement } = schedule, freed = freedBy(ways, sizeOf);
  return lists.map((list, worker) => {
    const receives = placement[worker]!.some(({ stage }) => freed[stage]! > 0);
    if (!receives) return { come: new Float64Array(list.length), freed };
    if (isTooLarge(schedule)) return { come: allAtOnce(schedule, list, freed), freed };
    return { come: comeBySlowness(schedule, worker, ways, sizeOf), freed };
  });
}

/** What may have come to a worker by the end of each of its actions, if all others are as fast as can be. */
export function comeBySlowness(
  schedule: ListedSchedule,
  slow: number,
  ways: readonly StageWays[],
  sizeOf: (way: Way, from: number) => number,
): Float64Array {
  const hosts = hostTable(schedule), { stages, replicaOf } = schedule;
  const come = new Float64Array(schedule.lists[slow]!.length);
  runAround(schedule, slow, ({ kind, stage, microBatch, share }, before) => {
    const first = replicaOf[microBatch]! * stages;
    for (const way of leaving(ways, kind, stage)) {
      if (hosts[first + way.to] !== slow) continue;
      come[before]! += share * sizeOf(way, hosts[first + stage]!);
    }
  });
  let sum = 0;
  return come.map((size) => sum += size);
}

/** Whether it would take too long to see what comes to each worker by what order. */
export function isTooLarge({ lists }: ListedSchedule): boolean {
  return lists.length * lists.reduce((sum, { partCount }) => sum + partCount, 0) > PARTS_MAX;
}

/** The most that is there at a time. */
export function peakOfSkips(list: ActionList, { come, freed }: SkipLevels): number {
  const { slices } = list;
  let peak = 0, gone = 0;
  for (let index = 0; index < list.length; index++) {
    peak = Math.max(peak, come[index]! - gone);
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      gone += freedAt(list, part, freed) / slices;
    }
  }
  return peak;
}

/** Everything from the first action on. */
function allAtOnce(
  { slices = 1 }: Schedule,
  list: ActionList,
  freed: readonly number[],
): Float64Array {
  let all = 0;
  for (let part = 0; part < list.partCount; part++) all += freedAt(list, part, freed) / slices;
  return new Float64Array(list.length).fill(all);
}

/** What the end of a part frees, as if it were no slice. */
export function freedAt(list: ActionList, part: number, freed: ArrayLike<number>): number {
  const kind = list.kindAt(part);
  if (kind !== KIND.B && kind !== KIND.I) return 0;
  return freed[list.stageAt(part)]! * (list.halfAt(part) === 0 ? 1 : 0.5);
}
