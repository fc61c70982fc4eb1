/** A step with fewer micro-batches than its schedule is for: the last one of the data. */

import { type Action, cutInto } from "../action.ts";
import { peakOf } from "../action_list.ts";
import {
  evenShare,
  readOptions,
  type ScheduleDefinition,
  type ScheduleOptions,
} from "../define.ts";
import { recomputedStages } from "../analysis/recomputation.ts";
import { assertInput, ifServed } from "../errors.ts";
import { followedBy, type Schedule, splitsBackward, withEdges, withOrders } from "../schedule.ts";
import { greedyOrder } from "../search/greedy.ts";
import { workloadOf } from "../search/limits.ts";
import { findSchedule, scheduleNames } from "./registry.ts";

/**
 * A schedule for another number of micro-batches on the same placement: the same schedule if it can
 * serve them, otherwise `1f1b`.
 *
 * With one stage per worker this is 1F1B itself. On other placements it is the order that the rule
 * of 1F1B gives there: backwards first, then the forward of the deepest stage. A worker holds at most
 * the activations that 1F1B would hold of its stages and at most those of the given schedule, but at
 * least one for each stage; a pipeline with D stages has at most D micro-batches in flight. The slices
 * of a micro-batch follow each other. Pipelines share the micro-batches as evenly as possible, in
 * consecutive runs; some may get none.
 *
 * @param options The options of the schedule, if it was made by name.
 * @param microBatches From 0, as a data-parallel replica may be left without any.
 * @param definition The definition of the schedule; the one of its name unless given.
 * @throws {RangeError} if `microBatches` is not a whole number from 0.
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
  definition?: ScheduleDefinition,
): Schedule {
  const isCount = Number.isSafeInteger(microBatches) && microBatches >= 0;
  const must = "microBatches must be a whole number from 0";
  assertInput(isCount, "make a smaller schedule", must, microBatches);
  const { name, listPolicy, edges } = schedule;
  if (microBatches === schedule.microBatches) return schedule;
  const known = definition ?? (scheduleNames().includes(name) ? findSchedule(name) : undefined);
  const same = known && sameByDefinition(schedule, options, microBatches, known);
  const like = same && edges ? withEdges(same, edges) : same;
  const isServed = like && areActionsOf(schedule, like);
  const made = isServed ? like : oneFOneBOn(schedule, microBatches, same), { lists } = made;
  return listPolicy && lists ? followedBy({ ...made, lists }, listPolicy) : made;
}

/** The schedule by the same definition, if it serves the micro-batches on the same placement. */
function sameByDefinition(
  schedule: Schedule,
  options: ScheduleOptions,
  count: number,
  definition: ScheduleDefinition,
): Schedule | undefined {
  // The options of chimera-wave are those of one of its two groups.
  const microBatches = count * options.microBatches / schedule.microBatches;
  const own = { ...readOptions(definition, options), microBatches };
  const made = ifServed(() => definition.create(own));
  const isSame = made?.microBatches === count && made.updates === schedule.updates &&
    placementKey(made) === placementKey(schedule);
  return isSame ? Object.freeze({ ...made, name: schedule.name }) : undefined;
}

/** Returns whether stages for a schedule can run another one: they split backwards, and recompute. */
const areActionsOf = (schedule: Schedule, other: Schedule): boolean =>
  (splitsBackward(schedule) || !splitsBackward(other)) &&
  recomputedStages(other).isSubsetOf(recomputedStages(schedule));

const placementKey = ({ placement }: Schedule) =>
  JSON.stringify(placement.map((held) => held.map(({ stage, pipeline }) => [stage, pipeline])));

/** @param same The schedule by the same definition, if there is one: the pipelines are those of it. */
function oneFOneBOn(schedule: Schedule, microBatches: number, same?: Schedule): Schedule {
  const { placement, stages } = schedule;
  const pipelines = 1 + Math.max(...placement.flat().map(({ pipeline }) => pipeline));
  const pipelineOf = same?.pipelineOf ?? Array.from(
    { length: pipelines },
    (_, pipeline) => new Array<number>(evenShare(microBatches, pipelines, pipeline)).fill(pipeline),
  ).flat();
  const base: Schedule = { ...schedule, microBatches, pipelineOf };
  const { slices = 1, ...whole } = base;
  const limits = placement.map((held, worker) => {
    // In 1F1B the last stage holds one activation, each stage before it one more.
    const ofOneFOneB = held.reduce((sum, { stage }) => sum + stages - stage, 0);
    const list = schedule.lists?.[worker];
    const own = list === undefined ? held.length * schedule.injectionLimit : peakOf(list);
    return Math.max(held.length, Math.min(ofOneFOneB, own));
  });
  const orders = greedyOrder(workloadOf(whole), { limits, pipeLimit: stages });
  return withOrders(base, "1f1b", orders.map((order) => inSlices(order, slices)));
}

/** The order with each action replaced by the actions of its slices, one after the other. */
function inSlices(order: Iterable<Action>, slices: number): Action[] {
  if (slices === 1) return [...order];
  const parts = cutInto(slices), backward = parts.toReversed();
  return [...order].flatMap((action) =>
    (action.kind === "F" ? parts : backward).map((part) => ({ ...action, part }))
  );
}
