/** How a schedule is made: a place for each stage, an order for each worker. */

import type { Action } from "../actions/action.ts";
import { ActionList } from "../actions/action_list.ts";
import { listPolicies } from "../policies/list_policies.ts";
import type { StepPolicy } from "../policies/policy.ts";
import type { PlacedStage, Schedule, WeightUpdates } from "../schedule.ts";
import type { ClosedForm, UniformCosts } from "./closed_form.ts";
import type { ScheduleOptions } from "./options.ts";

/** Where the stages of each replica of the pipeline sit. */
export interface Place {
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The worker that holds a stage of a replica. */
  workerOf(stage: number, replica: number): number;
  /** Copies of the pipeline; 1 unless given. */
  readonly replicas?: number;
  /** The replica that computes a micro-batch; 0 unless given. */
  replicaOf?(microBatch: number): number;
  /** Workers in all, where that is not the `workers` asked for. */
  readonly workers?: number;
  /** Micro-batches in all, where that is not the `microBatches` asked for. */
  readonly microBatches?: number;
}

/** A schedule by rule. `place` and `order` may throw a RangeError for what they cannot serve. */
export interface ScheduleRule<O extends ScheduleOptions = ScheduleOptions> {
  /** The name under which it is asked for. */
  readonly name: string;
  /** One line that tells a user what it is. */
  readonly summary: string;
  /** When the weights change; `flush` unless given. */
  readonly updates?: WeightUpdates;
  /** The versions of its weights that a worker keeps; 1 unless given. */
  weightVersions?(worker: number, options: O): number;
  /** What theory says of it, where it says anything. */
  closedForm?(options: O, costs: UniformCosts): ClosedForm;
  /** Where the stages sit. Called first: the place to refuse options. */
  place(options: O): Place;
  /** What a worker does, in order. */
  order(worker: number, options: O): Iterable<Action>;
}

/** A schedule whose workers take messages as they come, instead of an order known beforehand. */
export interface PolicyRule<O extends ScheduleOptions = ScheduleOptions>
  extends Omit<ScheduleRule<O>, "order"> {
  /** Micro-batches in flight at a time. */
  injectionLimit(options: O): number;
  /** A new policy for a worker, good for one step. */
  policy(worker: number, options: O): StepPolicy;
}

/** A named schedule that can be made for any options it serves. */
export interface ScheduleDefinition<O extends ScheduleOptions = ScheduleOptions> {
  /** The name under which it is asked for. */
  readonly name: string;
  /** One line that tells a user what it is. */
  readonly summary: string;
  /** What theory says of it for the options, where it says anything. */
  closedForm?(options: O, costs: UniformCosts): ClosedForm;
  /**
   * Makes the schedule.
   *
   * @throws {RangeError} if it cannot serve the options.
   */
  create(options: O): Schedule;
}

/**
 * Makes a schedule from a rule: `place` says which worker holds which stage, `order` what each
 * worker does. Every schedule of this package is made in this way.
 *
 * @throws {RangeError} on `create`, if an option is no positive whole number, or if a stage is
 * placed on no worker.
 *
 * @example All forwards, then all backwards
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, defineSchedule, F } from "@troupe/troupe/schedules";
 *
 * const mine = defineSchedule({
 *   name: "mine",
 *   summary: "all forwards, then all backwards",
 *   place: ({ workers }) => ({ stages: workers, workerOf: (stage) => stage }),
 *   *order(worker, { microBatches }) {
 *     for (let m = 0; m < microBatches; m++) yield F(worker, m);
 *     for (let m = 0; m < microBatches; m++) yield B(worker, m);
 *   },
 * });
 * const schedule = mine.create({ workers: 2, microBatches: 2 });
 * strictEqual(String(schedule.lists?.[1]), "1F0,1F1,1B0,1B1");
 * ```
 */
export function defineSchedule<O extends ScheduleOptions = ScheduleOptions>(
  rule: ScheduleRule<O> | PolicyRule<O>,
): ScheduleDefinition<O> {
  const { name, summary, closedForm } = rule;
  const create = (options: O) => build(rule, options);
  return { name, summary, create, ...(closedForm && { closedForm }) };
}

/** The most (stage, micro-batch) pairs of a schedule: to analyze it takes a gigabyte. */
const COMPUTED_MAX = 2 ** 23;

/** The most copies of stages, all replicas of the pipeline together. */
const COPIES_MAX = 2 ** 20;

function build<O extends ScheduleOptions>(
  rule: ScheduleRule<O> | PolicyRule<O>,
  options: O,
): Schedule {
  for (
    const key of [
      "workers",
      "microBatches",
      "pipelineLimit",
      "chunks",
      "waves",
      "pipelines",
    ] as const
  ) {
    const value = options[key];
    if (value !== undefined) requireOption(rule.name, key, value, value >= 1, "at least 1");
  }
  const place = rule.place(options);
  const workers = place.workers ?? options.workers;
  const microBatches = place.microBatches ?? options.microBatches;
  const { stages, replicas = 1 } = place;
  if (Math.max(workers, stages * replicas) > COPIES_MAX) {
    throw new RangeError(
      `Cannot make the schedule ${rule.name}: workers, and stages of all its pipelines, must be at ` +
        `most ${COPIES_MAX}, received ${workers} and ${stages} times ${replicas}`,
    );
  }
  if (stages * microBatches > COMPUTED_MAX) {
    throw new RangeError(
      `Cannot make the schedule ${rule.name}: stages times micro-batches must be at most ` +
        `${COMPUTED_MAX}, received ${stages} times ${microBatches}`,
    );
  }
  const shared = {
    name: rule.name,
    workers,
    stages,
    microBatches,
    placement: placementTable(rule.name, place, workers),
    replicaOf: Array.from({ length: microBatches }, (_, m) => place.replicaOf?.(m) ?? 0),
    updates: rule.updates ?? "flush",
    weightVersions: Array.from(
      { length: workers },
      (_, w) => rule.weightVersions?.(w, options) ?? 1,
    ),
  };
  if ("policy" in rule) {
    return Object.freeze({
      ...shared,
      injectionLimit: rule.injectionLimit(options),
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

/**
 * Refuses an option of a schedule.
 *
 * @throws {RangeError} if `holds` is false or `value` is not a whole number.
 *
 * @example
 * ```ts
 * import { throws } from "node:assert/strict";
 * import { requireOption } from "@troupe/troupe/schedules";
 *
 * throws(() => requireOption("chimera", "workers", 3, 3 % 2 === 0, "even"), {
 *   name: "RangeError",
 *   message: "Cannot make the schedule chimera: workers must be even, received 3",
 * });
 * ```
 */
export function requireOption(
  schedule: string,
  option: string,
  value: number,
  holds: boolean,
  must: string,
): void {
  if (Number.isInteger(value) && holds) return;
  const whole = Number.isInteger(value) ? "" : "a whole number, ";
  throw new RangeError(
    `Cannot make the schedule ${schedule}: ${option} must be ${whole}${must}, received ${value}`,
  );
}
