/** A step with fewer micro-batches than its schedule is for: the last one of the data. */

import { type Action, sliced } from "../action.ts";
import { peakOf } from "../action_list.ts";
import {
  evenShare,
  readOptions,
  type ScheduleDefinition,
  type ScheduleOptions,
} from "../define.ts";
import { withOrders } from "../from_lists.ts";
import { followedBy, type Schedule, withEdges } from "../schedule.ts";
import { greedyOrder, type Strategy } from "../search/greedy.ts";
import { workloadOf } from "../search/limits.ts";
import { findSchedule, scheduleNames } from "./registry.ts";

/**
 * A schedule for another number of micro-batches on the same placement: the same one where it can
 * serve them, else `1f1b`.
 *
 * That is 1F1B itself where each worker has one stage. On other placements it is the order that
 * 1F1B's rule gives there: backwards first, of forwards the deepest stage, and on each worker no
 * more activations than 1F1B keeps of its stages, nor than the given schedule keeps, but one for
 * each stage; in each pipe no more micro-batches in flight than it has stages. Where sequences are cut, the slices of a
 * micro-batch follow each other. Replicas of the pipeline share the micro-batches as evenly as possible, consecutive
 * ones to each; some may get none.
 *
 * @param options What the schedule was made with, where it was made by its name.
 * @param microBatches From 0: a data-parallel replica may be left without any.
 * @param definition What made it; that of its name unless given.
 * @throws {RangeError} if `microBatches` is no whole number from 0.
 *
 * @example Hanayo serves multiples of its workers only
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { createSchedule, smallerSchedule } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 4 };
 * const hanayo = createSchedule("hanayo", options);
 * strictEqual(smallerSchedule(hanayo, options, 2).name, "hanayo");
 * const last = smallerSchedule(hanayo, options, 1);
 * strictEqual(last.name, "1f1b");
 * strictEqual(String(last.lists?.[0]), "0F0,3F0,3B0,0B0");
 * deepStrictEqual(last.placement, hanayo.placement);
 * ```
 */
export function smallerSchedule(
  schedule: Schedule,
  options: ScheduleOptions,
  microBatches: number,
  definition: ScheduleDefinition | undefined = knownDefinition(schedule.name),
): Schedule {
  if (!Number.isSafeInteger(microBatches) || microBatches < 0) {
    throw new RangeError(
      `Cannot make a smaller schedule: microBatches must be a whole number from 0, received ` +
        `${microBatches}`,
    );
  }
  if (microBatches === schedule.microBatches) return schedule;
  const same = definition && sameByDefinition(schedule, options, microBatches, definition);
  const { listPolicy, edges } = schedule;
  const like = same && edges ? withEdges(same, edges) : same;
  const made = like ?? oneFOneBOn(schedule, microBatches), { lists } = made;
  return listPolicy && lists ? followedBy({ ...made, lists }, listPolicy) : made;
}

function knownDefinition(name: string): ScheduleDefinition | undefined {
  return scheduleNames().includes(name) ? findSchedule(name) : undefined;
}

/** The schedule by the same definition, where it serves the micro-batches on the same placement. */
function sameByDefinition(
  schedule: Schedule,
  options: ScheduleOptions,
  count: number,
  definition: ScheduleDefinition,
): Schedule | undefined {
  // The options of Chimera as waves are those of one of its two groups.
  const microBatches = count * options.microBatches / schedule.microBatches;
  try {
    const made = definition.create({ ...readOptions(definition, options), microBatches });
    const isSame = made.microBatches === count && made.updates === schedule.updates &&
      placementKey(made) === placementKey(schedule);
    return isSame ? Object.freeze({ ...made, name: schedule.name }) : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

const placementKey = ({ placement }: Schedule) =>
  JSON.stringify(placement.map((held) => held.map(({ stage, replica }) => [stage, replica])));

function oneFOneBOn(schedule: Schedule, microBatches: number): Schedule {
  const { placement, stages } = schedule;
  const replicas = 1 + Math.max(...placement.flat().map(({ replica }) => replica));
  const replicaOf = Array.from(
    { length: replicas },
    (_, replica) => new Array<number>(evenShare(microBatches, replicas, replica)).fill(replica),
  ).flat();
  const base: Schedule = { ...schedule, microBatches, replicaOf };
  const { slices = 1, ...whole } = base;
  const strategy: Strategy = {
    isSplit: false,
    isForwardFirst: false,
    limits: placement.map((held, worker) => {
      // In 1F1B the last stage holds one activation, each stage before it one more.
      const ofOneFOneB = held.reduce((sum, { stage }) => sum + stages - stage, 0);
      const list = schedule.lists?.[worker];
      const own = list === undefined ? held.length * schedule.injectionLimit : peakOf(list);
      return Math.max(held.length, Math.min(ofOneFOneB, own));
    }),
    pipeLimit: stages,
    patience: 0,
  };
  const orders = greedyOrder(workloadOf(whole), strategy);
  return withOrders(base, "1f1b", orders.map((order) => inSlices(order, slices)));
}

/** Actions of whole micro-batches as those of their slices, one after the other. */
function inSlices(order: Iterable<Action>, slices: number): Action[] {
  if (slices === 1) return [...order];
  return [...order].flatMap((action) =>
    Array.from(
      { length: slices },
      (_, i) => sliced(action, action.kind === "F" ? i : slices - 1 - i),
    )
  );
}
