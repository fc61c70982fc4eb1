/** Makes a schedule from a rule, its options and sizes checked. */

import { ActionList } from "../actions/action_list.ts";
import { listPolicies } from "../policies/list_policies.ts";
import type { PlacedStage, Schedule } from "../schedule.ts";
import type { ScheduleOptions } from "./options.ts";
import { requireOption } from "./require_option.ts";
import type { Place, PolicyRule, ScheduleRule } from "./rule.ts";

/** The most (stage, micro-batch, slice) of a schedule: to analyze it takes a gigabyte. */
const COMPUTED_MAX = 2 ** 23;

/** The most copies of stages, all replicas of the pipeline together. */
const COPIES_MAX = 2 ** 20;

/** The options that count something. */
const COUNTS = [
  "workers",
  "microBatches",
  "pipelineLimit",
  "chunks",
  "waves",
  "slices",
  "pipelines",
] as const;

/**
 * Makes the schedule of a rule.
 *
 * @throws {RangeError} if an option is no positive whole number, the schedule is too large, or a
 * stage is placed on no worker.
 */
export function buildSchedule<O extends ScheduleOptions>(
  rule: ScheduleRule<O> | PolicyRule<O>,
  options: O,
): Schedule {
  for (const key of COUNTS) {
    const value = key in options ? options[key] : undefined;
    if (value !== undefined) requireOption(rule.name, key, value, value >= 1, "at least 1");
  }
  const place = rule.place(options);
  const workers = place.workers ?? options.workers;
  const microBatches = place.microBatches ?? options.microBatches;
  checkSize(rule.name, place, workers, microBatches);
  const { stages, slices = 1 } = place;
  const shared = {
    name: rule.name,
    workers,
    stages,
    microBatches,
    ...slices > 1 && { slices },
    placement: placementTable(rule.name, place, workers),
    replicaOf: Array.from({ length: microBatches }, (_, m) => place.replicaOf?.(m) ?? 0),
    updates: rule.updates ?? "flush",
    weightVersions: Array.from(
      { length: workers },
      (_, w) => rule.weightVersions?.(w, options) ?? 1,
    ),
  };
  if ("policy" in rule) {
    const peaks = rule.peak && shared.placement.map((_, w) => rule.peak!(w, options));
    return Object.freeze({
      ...shared,
      injectionLimit: rule.injectionLimit(options),
      ...peaks && { peaks },
      policy: (worker: number) => rule.policy(checkWorker(worker, workers), options),
    });
  }
  const lists = Object.freeze(
    Array.from({ length: workers }, (_, worker) => ActionList.from(rule.order(worker, options))),
  );
  return Object.freeze({
    ...shared,
    lists,
    injectionLimit: microBatches,
    policy: listPolicies(lists),
  });
}

function checkSize(name: string, place: Place, workers: number, microBatches: number): void {
  const { stages, replicas = 1, slices = 1 } = place;
  if (Math.max(workers, stages * replicas) > COPIES_MAX) {
    throw new RangeError(
      `Cannot make the schedule ${name}: workers, and stages of all its pipelines, must be at ` +
        `most ${COPIES_MAX}, received ${workers} and ${stages} times ${replicas}`,
    );
  }
  if (stages * microBatches * slices > COMPUTED_MAX) {
    throw new RangeError(
      `Cannot make the schedule ${name}: stages times micro-batches must be at most ` +
        `${COMPUTED_MAX}, received ${stages} times ${microBatches}${
          slices > 1 ? `, in ${slices} slices each` : ""
        }`,
    );
  }
}

function placementTable(name: string, place: Place, workers: number): readonly PlacedStage[][] {
  const table: PlacedStage[][] = Array.from({ length: workers }, () => []);
  for (let replica = 0; replica < (place.replicas ?? 1); replica++) {
    for (let stage = 0; stage < place.stages; stage++) {
      const worker = place.workerOf(stage, replica);
      const held = table[worker];
      if (held === undefined) {
        throw new RangeError(
          `Cannot place ${name}: the worker of stage ${stage} of replica ${replica} must be from ` +
            `0 to ${workers - 1}, received ${worker}`,
        );
      }
      held.push({ stage, replica });
    }
  }
  return table;
}

function checkWorker(worker: number, workers: number): number {
  if (Number.isInteger(worker) && worker >= 0 && worker < workers) return worker;
  throw new RangeError(
    `Cannot make a policy: the worker must be from 0 to ${workers - 1}, received ${worker}`,
  );
}
