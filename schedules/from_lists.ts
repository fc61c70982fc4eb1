/** Schedules from action lists: the lists determine the placement. */

import type { Action } from "./action.ts";
import { ActionList, KIND, partAt } from "./action_list.ts";
import { assertInput, refusal } from "./errors.ts";
import { listPolicies } from "./policies.ts";
import type { ListedSchedule, PlacedStage, Schedule } from "./schedule.ts";

/**
 * Makes a schedule from the lists of its workers, such as those of a CSV file. The placement is
 * that of the forwards: micro-batches that take the same path through the workers share a pipeline,
 * numbered by its first micro-batch. `validate` checks that it can run.
 *
 * @throws {RangeError} if a stage of a micro-batch has no forward, or more than one, so that its worker
 * is unknown.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { parseCsv, scheduleFromLists } from "@troupe/troupe/schedules";
 *
 * const schedule = scheduleFromLists("mine", parseCsv("0F0,1F1,1B1,0B0\n1F0,1B0,0F1,0B1\n"));
 * deepStrictEqual(schedule.pipelineOf, [0, 1]);
 * deepStrictEqual(schedule.placement[0], [{ stage: 0, pipeline: 0 }, { stage: 1, pipeline: 1 }]);
 * ```
 */
export function scheduleFromLists(name: string, lists: readonly ActionList[]): ListedSchedule {
  const size = sizeOf(lists), { stages, microBatches, slices } = size;
  const pipelines = new Map<string, number>();
  const placement: PlacedStage[][] = lists.map(() => []);
  const pipelineOf = forwardHosts(name, lists, size).map((path) => {
    const key = path.join(), known = pipelines.get(key), pipeline = known ?? pipelines.size;
    if (known !== undefined) return known;
    pipelines.set(key, pipeline);
    path.forEach((worker, stage) => placement[worker]?.push({ stage, pipeline }));
    return pipeline;
  });
  return Object.freeze({
    name,
    workers: lists.length,
    stages,
    microBatches,
    ...slices > 1 && { slices },
    placement,
    pipelineOf,
    lists,
    injectionLimit: microBatches,
    updates: "flush" as const,
    weightVersions: lists.map(() => 1),
    policy: listPolicies(lists),
  });
}

function sizeOf(lists: readonly ActionList[]) {
  let stages = 0, microBatches = 0, slices = 1;
  for (const list of lists) {
    slices = Math.max(slices, list.slices);
    for (let part = 0; part < list.partCount; part++) {
      stages = Math.max(stages, list.stageAt(part) + 1);
      microBatches = Math.max(microBatches, list.microBatchAt(part) + 1);
    }
  }
  return { stages, microBatches, slices };
}

/**
 * A schedule with the placement of another and its own orders.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, createSchedule, F, withOrders } from "@troupe/troupe/schedules";
 *
 * const base = createSchedule("gpipe", { workers: 1, microBatches: 2 });
 * const mine = withOrders(base, "mine", [[F(0, 0), B(0, 0), F(0, 1), B(0, 1)]]);
 * strictEqual(String(mine.lists[0]), "0F0,0B0,0F1,0B1");
 * ```
 */
export function withOrders(
  base: Schedule,
  name: string,
  orders: readonly Iterable<Action>[],
): ListedSchedule {
  const lists = Object.freeze(orders.map((order) => ActionList.from(order)));
  const policy = listPolicies(lists, base.listPolicy);
  return Object.freeze({ ...base, name, lists, injectionLimit: base.microBatches, policy });
}

/** For each micro-batch, the worker of each stage. */
function forwardHosts(
  name: string,
  lists: readonly ActionList[],
  { stages, microBatches, slices }: ReturnType<typeof sizeOf>,
): Int32Array[] {
  let forwards = 0;
  for (const list of lists) {
    for (let part = 0; part < list.partCount; part++) if (list.kindAt(part) === KIND.F) forwards++;
  }
  const cannot = `place the schedule ${name}`, all = stages * microBatches * slices;
  const of = `each of ${stages} stages${slices > 1 ? ` and ${slices} slices` : ""}`;
  const must = `each of ${microBatches} micro-batches must have a forward of ${of}, ${all} in all`;
  assertInput(forwards >= all, cannot, must, forwards);
  const hosts = Array.from({ length: microBatches }, () => new Int32Array(stages).fill(-1));
  const refuse = (stage: number, microBatch: number, received: string): never => {
    throw refusal(cannot, `${stage}F${microBatch} must be on exactly one list`, received);
  };
  lists.forEach((list, worker) => {
    for (let part = 0; part < list.partCount; part++) {
      if (list.kindAt(part) !== KIND.F) continue;
      const { stage, microBatch } = partAt(list, part);
      const path = hosts[microBatch]!, known = path[stage]!;
      if (known >= 0 && (known !== worker || slices === 1)) {
        refuse(stage, microBatch, `it on the lists of workers ${known} and ${worker}`);
      }
      path[stage] = worker;
    }
  });
  hosts.forEach((path, microBatch) => {
    const stage = path.indexOf(-1);
    if (stage >= 0) refuse(stage, microBatch, "none that has it");
  });
  return hosts;
}
