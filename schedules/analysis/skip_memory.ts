/** What skip edges ask of the mailbox and the memory of a worker. */

import { type ActionList, KIND } from "../action_list.ts";
import { runAround } from "../execute.ts";
import { hostTable, type ListedSchedule, type Schedule } from "../schedule.ts";
import { leaving, type SkipEdge, type StageWays, stageWays, type Way } from "../skip_edges.ts";

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
function comeBySlowness(
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
function isTooLarge({ lists }: ListedSchedule): boolean {
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

/** What comes to one worker over skip edges, when it is most, however long anything takes. */
export interface SkipTraffic {
  /**
   * Messages that have come and that no action has taken yet, each of a micro-batch, or of a half or
   * slice where the schedule has such. What goes to the next stage or the one before goes with the
   * message of the chain, and counts there.
   */
  readonly messages: number;
  /**
   * Bytes of values, until the end of the backward of the stage that uses them, and of gradients, until
   * that of the stage that they come to.
   */
  readonly bytes: number;
}

/**
 * What comes to each worker of a schedule over its skip edges: exact where workers follow their lists
 * to the letter, unless the step is so large that all that comes counts as if it came at once; where
 * they take what is there, all that micro-batches in flight can bring.
 *
 * @example A slow worker of 1F1B has the values, or their gradients, of all micro-batches in flight
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, skipTraffic, withEdges } from "@troupe/troupe/schedules";
 *
 * const chain = createSchedule("1f1b", { workers: 4, microBatches: 8 });
 * const traffic = skipTraffic(withEdges(chain, [{ from: 0, to: [3], bytes: 10 }]));
 * deepStrictEqual(traffic.map(({ messages }) => messages), [4, 0, 0, 4]);
 * deepStrictEqual(traffic.map(({ bytes }) => bytes), [40, 0, 0, 40]);
 * ```
 */
export function skipTraffic(schedule: Schedule): SkipTraffic[] {
  const { stages, placement, edges = [], lists, listPolicy } = schedule;
  const ways = stageWays(stages, edges);
  if (ways === undefined) return placement.map(() => ({ messages: 0, bytes: 0 }));
  const isKnown = lists !== undefined && (listPolicy?.name ?? "list") === "list";
  if (!isKnown || isTooLarge(schedule as ListedSchedule)) return inFlight(schedule, ways);
  const listed = { ...schedule, lists }, levels = levelsOf(listed, bytesOf(edges))!;
  return lists.map((list, worker) => ({
    messages: messagesAt(listed, worker, ways),
    bytes: peakOfSkips(list, levels[worker]!),
  }));
}

/** Messages of a micro-batch where backwards come in halves, or sequences in slices. */
function runsOf({ lists = [], slices = 1 }: Schedule): number {
  return lists.some(({ hasHalves }) => hasHalves) ? 2 : slices;
}

/** Whether what takes a way has a message of its own. */
const isApart = ({ from, to }: Way) => Math.abs(from - to) > 1;

/** All that the micro-batches in flight can bring to the stages of each worker. */
function inFlight(schedule: Schedule, ways: readonly StageWays[]): SkipTraffic[] {
  const { injectionLimit, replicaOf, placement, edges = [] } = schedule;
  const freed = freedBy(ways, bytesOf(edges)), count = messagesFreed(schedule, ways);
  const most = (replica: number) =>
    Math.min(injectionLimit, replicaOf.filter((one) => one === replica).length);
  return placement.map((held, worker) => {
    const sum = (sizeOf: (stage: number, replica: number) => number) =>
      held.reduce((total, { stage, replica }) => total + most(replica) * sizeOf(stage, replica), 0);
    const messages = sum((stage, replica) => {
      const { forward, backward } = count(worker, stage, replica);
      return forward + backward;
    });
    return { messages: messages * runsOf(schedule), bytes: sum((stage) => freed[stage]!) };
  });
}

/** Of a micro-batch, the messages from other workers that a forward and a backward take. */
function messagesFreed(schedule: Schedule, ways: readonly StageWays[]) {
  const hosts = hostTable(schedule), { stages } = schedule;
  return (worker: number, stage: number, replica: number) => {
    const count = (all: readonly Way[]) =>
      all.filter((way) => isApart(way) && hosts[replica * stages + way.from] !== worker).length;
    const { toForward, toBackward } = ways[stage]!;
    return { forward: count(toForward), backward: count(toBackward) };
  };
}

/** The most messages that wait for a worker which follows its list. */
function messagesAt(schedule: ListedSchedule, worker: number, ways: readonly StageWays[]): number {
  const list = schedule.lists[worker]!, freed = messagesFreed(schedule, ways);
  const sizeOf = (way: Way, from: number) => Number(isApart(way) && from !== worker);
  const come = comeBySlowness(schedule, worker, ways, sizeOf);
  let taken = 0, most = 0;
  for (let index = 0; index < list.length; index++) {
    most = Math.max(most, come[index]! - taken);
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      taken += takenBy(list, part, (stage, microBatch) =>
        freed(worker, stage, schedule.replicaOf[microBatch]!)) / (schedule.slices ?? 1);
    }
  }
  return Math.round(most * runsOf(schedule));
}

function takenBy(
  list: ActionList,
  part: number,
  of: (
    stage: number,
    microBatch: number,
  ) => { readonly forward: number; readonly backward: number },
): number {
  const kind = list.kindAt(part);
  if (kind === KIND.R || kind === KIND.W) return 0;
  const { forward, backward } = of(list.stageAt(part), list.microBatchAt(part));
  return kind === KIND.F ? forward : backward * (list.halfAt(part) === 0 ? 1 : 0.5);
}
