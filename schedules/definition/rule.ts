/** How a schedule is described: by a rule, and made from it by a definition. */

import type { Action } from "../actions/action.ts";
import type { StepPolicy } from "../policies/policy.ts";
import type { PeakBounds, Schedule, WeightUpdates } from "../schedule.ts";
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
  /** Slices of each micro-batch's sequence; 1 unless given. */
  readonly slices?: number;
  /** Workers in all, where that is not the `workers` asked for. */
  readonly workers?: number;
  /** Micro-batches in all, where that is not the `microBatches` asked for. */
  readonly microBatches?: number;
}

/** A schedule by rule. `place` and `order` may throw a RangeError for what they cannot serve. */
export interface ScheduleRule<O extends ScheduleOptions = ScheduleOptions> {
  /** The name under which it is asked for. */
  readonly name: string;
  /** Other names of it, such as that of another paper. */
  readonly aliases?: readonly string[];
  /** One line that tells a user what it is. */
  readonly summary: string;
  /**
   * The options that it reads beside `workers` and `microBatches`. Others are refused by name;
   * none is where a schedule does not say what it reads.
   */
  readonly reads?: readonly Exclude<keyof O, "workers" | "microBatches">[];
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
  /** What a worker holds at its peak; up to `injectionLimit` unless given. */
  peak?(worker: number, options: O): PeakBounds;
  /** A new policy for a worker, good for one step. */
  policy(worker: number, options: O): StepPolicy;
}

/** A named schedule that can be made for any options it serves. */
export interface ScheduleDefinition<O extends ScheduleOptions = ScheduleOptions> {
  /** The name under which it is asked for. */
  readonly name: string;
  /** Other names of it. */
  readonly aliases?: readonly string[];
  /** One line that tells a user what it is. */
  readonly summary: string;
  /** The options that it reads beside `workers` and `microBatches`; any where it does not say. */
  readonly reads?: readonly string[];
  /** What theory says of it for the options, where it says anything. */
  closedForm?(options: O, costs: UniformCosts): ClosedForm;
  /**
   * Makes the schedule.
   *
   * @throws {RangeError} if it cannot serve the options, or does not read one of them.
   */
  create(options: O): Schedule;
}
