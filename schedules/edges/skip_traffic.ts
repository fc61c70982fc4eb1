/** What skip edges ask of the mailbox and the memory of a worker. */

import { type ActionList, KIND } from "../actions/action_list.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import {
  bytesOf,
  comeBySlowness,
  freedBy,
  isTooLarge,
  levelsOf,
  peakOfSkips,
} from "./skip_levels.ts";
import { type StageWays, stageWays, type Way } from "./ways.ts";

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
