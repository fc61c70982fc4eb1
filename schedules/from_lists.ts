/** A schedule from lists alone: the placement is what the lists do. */

import type { Action } from "./action.ts";
import { ActionList, KIND } from "./action_list.ts";
import { listPolicies } from "./policies.ts";
import type { ListedSchedule, PlacedStage, Schedule } from "./schedule.ts";

/**
 * Makes a schedule from the lists of its workers, such as those of a CSV file. The placement is
 * that of the forwards: micro-batches that take the same way over the workers share a replica of
 * the pipeline, numbered by their first micro-batch. `validate` says whether it can run.
 *
 * @throws {RangeError} if a stage of a micro-batch has no forward, or more than one, so that there
 * is no telling where it sits.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { parseCsv, scheduleFromLists } from "@troupe/troupe/schedules";
 *
 * const schedule = scheduleFromLists("mine", parseCsv("0F0,1F1,1B1,0B0\n1F0,1B0,0F1,0B1\n"));
 * deepStrictEqual(schedule.replicaOf, [0, 1]);
 * deepStrictEqual(schedule.placement[0], [{ stage: 0, replica: 0 }, { stage: 1, replica: 1 }]);
 * ```
 */
export function scheduleFromLists(name: string, lists: readonly ActionList[]): ListedSchedule {
  const { stages, microBatches, slices } = extent(lists);
  const hosts = forwardHosts(name, lists, { stages, microBatches, slices });
  const replicas = new Map<string, number>();
  const placement: PlacedStage[][] = lists.map(() => []);
  const replicaOf = hosts.map((way) => {
    const key = way.join();
    const known = replicas.get(key);
    if (known !== undefined) return known;
    const replica = replicas.size;
    replicas.set(key, replica);
    way.forEach((worker, stage) => placement[worker]?.push({ stage, replica }));
    return replica;
  });
  return Object.freeze({
    name,
    workers: lists.length,
    stages,
    microBatches,
    ...slices > 1 && { slices },
    placement,
    replicaOf,
    lists,
    injectionLimit: microBatches,
    updates: "flush" as const,
    weightVersions: lists.map(() => 1),
    policy: listPolicies(lists),
  });
}

/** How much lists compute. */
interface Extent {
  readonly stages: number;
  readonly microBatches: number;
  readonly slices: number;
}

function extent(lists: readonly ActionList[]): Extent {
  let stages = 0, microBatches = 0, slices = 1;
  for (const list of lists) {
    for (let part = 0; part < list.partCount; part++) {
      stages = Math.max(stages, list.stageAt(part) + 1);
      microBatches = Math.max(microBatches, list.microBatchAt(part) + 1);
      slices = Math.max(slices, list.sliceAt(part) + 1);
    }
  }
  return { stages, microBatches, slices };
}

/**
 * A schedule with the placement of another and orders of its own.
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
  return Object.freeze({
    ...base,
    name,
    lists,
    injectionLimit: base.microBatches,
    policy: listPolicies(lists, base.listPolicy),
  });
}

/** For each micro-batch, the worker of each stage. */
function forwardHosts(
  name: string,
  lists: readonly ActionList[],
  { stages, microBatches, slices }: Extent,
): Int32Array[] {
  const forwards = lists.reduce((sum, list) => sum + countForwards(list), 0);
  if (forwards < stages * microBatches * slices) {
    throw new RangeError(
      `Cannot place the schedule ${name}: each of ${microBatches} micro-batches must have a ` +
        `forward of each of ${stages} stages${slices > 1 ? ` and ${slices} slices` : ""}, ` +
        `${stages * microBatches * slices} in all, received ${forwards}`,
    );
  }
  const hosts = Array.from({ length: microBatches }, () => new Int32Array(stages).fill(-1));
  const refuse = (stage: number, microBatch: number, received: string): never => {
    throw new RangeError(
      `Cannot place the schedule ${name}: ${stage}F${microBatch} must be on exactly one list, ` +
        `received ${received}`,
    );
  };
  lists.forEach((list, worker) => {
    for (let part = 0; part < list.partCount; part++) {
      if (list.kindAt(part) !== KIND.F) continue;
      const [stage, microBatch] = [list.stageAt(part), list.microBatchAt(part)];
      const way = hosts[microBatch] as Int32Array;
      const known = way[stage] as number;
      if (known >= 0 && (known !== worker || slices === 1)) {
        refuse(stage, microBatch, `it on the lists of workers ${known} and ${worker}`);
      }
      way[stage] = worker;
    }
  });
  hosts.forEach((way, microBatch) => {
    const stage = way.indexOf(-1);
    if (stage >= 0) refuse(stage, microBatch, "none that has it");
  });
  return hosts;
}

function countForwards(list: ActionList): number {
  let count = 0;
  for (let part = 0; part < list.partCount; part++) if (list.kindAt(part) === KIND.F) count++;
  return count;
}
