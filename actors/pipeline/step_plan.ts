/**
 * Who computes which micro-batches of a step, and under which terms.
 *
 * @module
 */

import type { Batch, DropoutKey, StageProgram } from "../../kernels/mod.ts";
import {
  type Schedule,
  type ScheduleDefinition,
  type ScheduleOptions,
  smallerSchedule,
} from "../../schedules/mod.ts";
import { type PolicyData, policyData } from "./policy_data.ts";
import type { StepRequest } from "./step.ts";
import { type LocalUpdates, UPDATE_POLICIES } from "./update_policy.ts";

/** The micro-batches of a step that one data-parallel replica computes. */
export interface MicroBatchShare {
  /** The global id of its first micro-batch; the others follow. */
  readonly first: number;
  /** For each of its micro-batches the replica of the pipeline that computes it. */
  readonly pipeOf: readonly number[];
}

/** Who computes which micro-batches of a step. */
export interface StepShares {
  /** For each data-parallel replica. */
  readonly shares: readonly MicroBatchShare[];
  /** For each worker, where a step is smaller than the schedule is for. */
  readonly policies?: readonly PolicyData[] | undefined;
}

/** All that the actors need to know of a step before its micro-batches. */
export interface StepPlan extends StepShares {
  /** For each micro-batch, by global id, the factor of its loss. */
  readonly lossScales: readonly number[];
  /** The updates of the step, where each stage steps its weights by itself. */
  readonly updates?: LocalUpdates | undefined;
  /** What keys its dropout, with the ids of micro-batches; absent where there is none. */
  readonly dropout?: StepDropout | undefined;
}

/** What keys the dropout of a step. */
export type StepDropout = Omit<DropoutKey, "microBatch" | "half">;

/** What plans are made from. */
export interface PlanOptions {
  /** Who computes what, when, in each data-parallel replica. */
  readonly schedule: Schedule;
  /** The options that the schedule was made with. */
  readonly scheduleOptions: ScheduleOptions;
  /** What makes it for fewer micro-batches too; by its name unless given. */
  readonly scheduleDefinition?: ScheduleDefinition | undefined;
  /** Data-parallel replicas, W. */
  readonly replicas: number;
  /** Predictions of a micro-batch. */
  readonly predictionsOf: (batch: Batch) => number;
  /** What is trained. */
  readonly model: Pick<StageProgram, "programs">;
  /** Keys dropout, with the step and the micro-batch. */
  readonly seed: number;
}

/** Plans step after step. */
export interface StepPlanner {
  /** The plan of the next step. */
  next(request: StepRequest): StepPlan;
  /** The pipe is empty: all weights that are older than the newest are forgotten. */
  drained(): void;
}

/** Opens a planner, for an empty pipe. */
export function openStepPlanner(options: PlanOptions): StepPlanner {
  const { schedule, predictionsOf } = options, policy = UPDATE_POLICIES[schedule.updates];
  /** Steps since the pipe was empty. */
  let steps = 0;
  return {
    next(request) {
      const { microBatches } = request;
      return {
        ...shareStep(options, microBatches.length),
        lossScales: microBatches.map((batch) => policy.lossScale(request, predictionsOf(batch))),
        updates: policy.localUpdates(request, schedule, steps++),
        ...dropoutOf(options, request),
      };
    },
    drained: () => void (steps = 0),
  };
}

/** What keys the dropout of a step, where there is any: other plans and messages have no such field. */
export function dropoutOf(
  { model, seed }: Pick<PlanOptions, "model" | "seed">,
  { step }: StepRequest,
): Pick<StepPlan, "dropout"> {
  return model.programs.some(({ masks }) => masks) ? { dropout: { seed, step } } : {};
}

/** Who computes which micro-batches of a step of `count` micro-batches. */
export function shareStep(
  { schedule, scheduleOptions, scheduleDefinition, replicas }: Omit<
    PlanOptions,
    "predictionsOf" | "model" | "seed"
  >,
  count: number,
): StepShares {
  if (!UPDATE_POLICIES[schedule.updates].isFlushed) {
    // Steps follow each other without a gap, so a smaller one changes nobody's order.
    return { shares: [{ first: 0, pipeOf: new Array(count).fill(0) }] };
  }
  const counts = shareMicroBatches(count, replicas);
  const schedules = counts.map((n) =>
    n === schedule.microBatches
      ? schedule
      : smallerSchedule(schedule, scheduleOptions, n, scheduleDefinition)
  );
  let first = 0;
  const shares = schedules.map(({ pipelineOf }, r) => {
    const share = { first, pipeOf: pipelineOf };
    first += counts[r]!;
    return share;
  });
  if (schedules.every((one) => one === schedule)) return { shares };
  const policies = schedules.flatMap((one) =>
    Array.from(
      { length: one.workers },
      (_, worker) =>
        policyData(one, { ...scheduleOptions, microBatches: one.microBatches }, worker),
    )
  );
  return { shares, policies };
}

/**
 * Shares `count` micro-batches among the replicas: consecutive ids, sizes that differ by one at most.
 *
 * @returns how many each replica gets.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { shareMicroBatches } from "@troupe/troupe/actors";
 *
 * assert.deepEqual(shareMicroBatches(7, 3), [2, 2, 3]);
 * ```
 */
export function shareMicroBatches(count: number, replicas: number): number[] {
  return Array.from(
    { length: replicas },
    (_, r) => Math.floor((r + 1) * count / replicas) - Math.floor(r * count / replicas),
  );
}
