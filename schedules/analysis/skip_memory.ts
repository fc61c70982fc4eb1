/** Skip edges in the mailboxes and the memory of workers. */

import { type ActionList, halvesOf, KIND } from "../action_list.ts";
import { runAround } from "../execute.ts";
import { hostTable, type ListedSchedule, type Schedule } from "../schedule.ts";
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
  return lists.map((list, worker) => {
    const receives = placement[worker]!.some(({ stage }) => freed[stage]! > 0);
    if (!receives) return { come: new Float64Array(list.length), freed };
    if (!isTooLarge(schedule)) {
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
  sizeOf: (route: SkipRoute, from: number) => number,
): Float64Array {
  const hosts = hostTable(schedule), { stages, pipelineOf } = schedule;
  const come = new Float64Array(schedule.lists[slow]!.length);
  runAround(schedule, slow, ({ kind, stage, microBatch, share }, before) => {
    const first = pipelineOf[microBatch]! * stages;
    for (const route of leaving(routes, kind, stage)) {
      if (hosts[first + route.to] !== slow) continue;
      come[before]! += share * sizeOf(route, hosts[first + stage]!);
    }
  });
  let sum = 0;
  return come.map((size) => sum += size);
}

/** Returns true if it would take too long to simulate each worker as the slowest. */
function isTooLarge({ lists }: ListedSchedule): boolean {
  return lists.length * lists.reduce((sum, { partCount }) => sum + partCount, 0) > PARTS_MAX;
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

/** Peak traffic of one worker over skip edges, for any durations of actions and messages. */
export interface SkipTraffic {
  /**
   * Messages that have arrived and that no action has taken yet, each of a micro-batch, or of a part
   * if the schedule has parts. Values for a neighbouring stage travel with the message of the
   * chain, and count there.
   */
  readonly messages: number;
  /**
   * Bytes of values, until the end of the backward of the stage that uses them, and of gradients, until
   * the end of the backward of the stage that receives them.
   */
  readonly bytes: number;
}

/**
 * The traffic of each worker of a schedule over its skip edges: exact if workers follow their lists
 * strictly, except that in very large steps all values count as if they arrived together; if workers
 * take any ready action, everything that the micro-batches in flight can bring.
 *
 * @example A slow worker of 1F1B holds the values, or their gradients, of all micro-batches in flight
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, skipTraffic } from "@troupe/troupe/schedules";
 * import { withEdges } from "../schedule.ts";
 *
 * const chain = createSchedule("1f1b", { workers: 4, microBatches: 8 });
 * const traffic = skipTraffic(withEdges(chain, [{ from: 0, to: [3], bytes: 10 }]));
 * deepStrictEqual(traffic.map(({ messages }) => messages), [4, 0, 0, 4]);
 * deepStrictEqual(traffic.map(({ bytes }) => bytes), [40, 0, 0, 40]);
 * ```
 */
export function skipTraffic(schedule: Schedule): SkipTraffic[] {
  const { stages, placement, edges = [], lists, listPolicy } = schedule;
  const routes = stageRoutes(stages, edges);
  if (routes === undefined) return placement.map(() => ({ messages: 0, bytes: 0 }));
  const isKnown = lists !== undefined && (listPolicy?.name ?? "list") === "list";
  if (!isKnown || isTooLarge(schedule as ListedSchedule)) return inFlight(schedule, routes);
  const listed = { ...schedule, lists }, levels = levelsOf(listed, bytesOf(edges))!;
  return lists.map((list, worker) => ({
    messages: messagesAt(listed, worker, routes),
    bytes: peakOfSkips(list, levels[worker]!),
  }));
}

/** Returns true if values over a route have their own message. */
const isApart = ({ from, to }: SkipRoute) => Math.abs(from - to) > 1;

/** The most that the micro-batches in flight can bring to the stages of each worker. */
function inFlight(schedule: Schedule, routes: readonly StageRoutes[]): SkipTraffic[] {
  const { injectionLimit, pipelineOf, placement, edges = [] } = schedule;
  const freed = freedBy(routes, bytesOf(edges)), count = messagesFreed(schedule, routes);
  const most = (pipeline: number) =>
    Math.min(injectionLimit, pipelineOf.filter((one) => one === pipeline).length);
  return placement.map((held, worker) => {
    let messages = 0, bytes = 0;
    for (const { stage, pipeline } of held) {
      const { forward, backward } = count(worker, stage, pipeline);
      messages += most(pipeline) * (forward + backward);
      bytes += most(pipeline) * freed[stage]!;
    }
    return { messages: messages * halvesOf(schedule) * (schedule.slices ?? 1), bytes };
  });
}

/** The messages from other workers that a forward and a backward of a micro-batch take. */
function messagesFreed(schedule: Schedule, routes: readonly StageRoutes[]) {
  const hosts = hostTable(schedule), { stages } = schedule;
  return (worker: number, stage: number, pipeline: number) => {
    const count = (all: readonly SkipRoute[]) =>
      all.filter((route) => isApart(route) && hosts[pipeline * stages + route.from] !== worker)
        .length;
    const { toForward, toBackward } = routes[stage]!;
    return { forward: count(toForward), backward: count(toBackward) };
  };
}

/** The most messages that wait for a worker that follows its list. */
function messagesAt(
  schedule: ListedSchedule,
  worker: number,
  routes: readonly StageRoutes[],
): number {
  const list = schedule.lists[worker]!, freed = messagesFreed(schedule, routes);
  const sizeOf = (route: SkipRoute, from: number) => Number(isApart(route) && from !== worker);
  const come = comeBySlowness(schedule, worker, routes, sizeOf);
  let taken = 0, most = 0;
  for (let index = 0; index < list.length; index++) {
    most = Math.max(most, come[index]! - taken);
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const kind = list.kindAt(part), copy = schedule.pipelineOf[list.microBatchAt(part)]!;
      if (kind === KIND.R || kind === KIND.W) continue;
      const { forward, backward } = freed(worker, list.stageAt(part), copy);
      taken += (kind === KIND.F ? forward : backward) / list.countAt(part);
    }
  }
  return Math.round(most * halvesOf(schedule) * (schedule.slices ?? 1));
}
