/**
 * One optimizer step as its taker sees it: what is asked for, and what it gives.
 *
 * [Note: flushes] With a flush the pipe runs empty at the end of each step; then all copies of all
 * stages have their gradients, and the step is committed by all workers or by none. Without, stages
 * step their weights one by one while others still compute and the next step has begun, so there is
 * no moment at which they could agree on a step. A loss or gradient that is not finite is told in the
 * outcome of its step, when it has reached weights already.
 *
 * @module
 */

import type { Batch, StageProgram } from "../../kernels/mod.ts";
import type { DropoutKey, StageMemory } from "../../kernels/internal.ts";
import {
  type Action,
  ActionList,
  createSchedule,
  type ListPolicy,
  type Schedule,
  type ScheduleDefinition,
  type ScheduleOptions,
  smallerSchedule,
  type StepPolicy,
  type WeightUpdates,
} from "../../schedules/mod.ts";
import { followList } from "../../schedules/internal.ts";
import type { GradientSquares } from "../gradients/commit.ts";

/** A worker's actions and how they are followed, or the name by which every isolate finds them. */
export type PolicyData =
  | { readonly actions: readonly Action[]; readonly policy: ListPolicy }
  | { readonly name: string; readonly options: ScheduleOptions; readonly worker: number };

/** The policy of one worker of a schedule as plain data. */
export function policyData(
  schedule: Schedule,
  options: ScheduleOptions,
  worker: number,
): PolicyData {
  const list = schedule.lists?.[worker];
  return list
    ? { actions: [...list], policy: schedule.listPolicy ?? { name: "list" } }
    : { name: schedule.name, options, worker };
}

/** The list of a policy, if it has one. */
export const listsOf = (data: PolicyData): ActionList[] =>
  "actions" in data ? [ActionList.from(data.actions)] : [];

/** A new policy, good for one step. */
export function restorePolicy(data: PolicyData): StepPolicy {
  return "actions" in data
    ? followList(listsOf(data)[0]!, data.policy)
    : createSchedule(data.name, data.options).policy(data.worker);
}

/** One optimizer step. */
export interface StepRequest {
  /** The step of the data, from 1, for reports. */
  readonly step: number;
  /** The step of the optimizer, from 1: steps that were not taken do not count. */
  readonly update: number;
  /** All micro-batches by global id. */
  readonly microBatches: readonly Batch[];
  /** Predictions of all of them. */
  readonly predictions: number;
  /** The learning rate. */
  readonly learningRate: number;
  /** Factor by which the loss is multiplied, so that FP16 gradients do not vanish. */
  readonly lossScale: number;
}

/** What a step gives. */
export interface StepOutcome {
  /** For each micro-batch the loss of each of its samples. */
  readonly losses: readonly Float32Array[];
  /**
   * For each update of the step the sum of squares of each parameter's gradient, by name: one
   * update, but for each micro-batch one in PipeDream; none where the step was not taken.
   */
  readonly updates: readonly GradientSquares[];
  /** False when a loss or gradient was not finite: then no weight has changed, but without flushes
   * all have. */
  readonly isCommitted: boolean;
  /** The most activations that each worker has held so far, in units of Ma (one P-th of a model). */
  readonly peakActivations: readonly number[];
  /** The most weights that each worker has held so far, in units of one P-th of a model. */
  readonly weights: readonly number[];
  /** For each worker the bytes that it holds; empty where they are not counted. */
  readonly memory?: readonly StageMemory[];
  /** For each worker what it did, when; empty unless the run is traced. */
  readonly traces: readonly (readonly TracedAction[])[];
}

/**
 * Something that a worker did. Times are of the clock of its host: workers of several hosts need
 * them aligned, as {@linkcode readStep} does.
 */
export interface TracedAction {
  /**
   * An action such as `2F0`, by the stage and the micro-batch of its replica (of all replicas in
   * `--runtime serial`); `reduce 2` for a part of the all-reduce of stage 2; `optimizer`.
   */
  readonly name: string;
  /** When it began, in milliseconds since the epoch. */
  readonly start: number;
  /** When it ended, in milliseconds since the epoch. */
  readonly end: number;
  /**
   * When the worker saw the last input that another actor sent for it, in milliseconds since the
   * epoch: what comes while it computes is seen when it has done so. Absent of what needs none.
   */
  readonly arrived?: number;
  /** When the last of its outputs was sent to another worker; absent where none was. */
  readonly sent?: number;
  /** Actions of F, B, I or W whose inputs had arrived, too, and waited for their turn. */
  readonly waiting?: number;
  /** The stage of an all-reduce or optimizer entry that is of one stage. */
  readonly stage?: number;
  /** The chunk of the all-reduce whose part came. */
  readonly chunk?: number;
  /** The bucket that the optimizer stepped. */
  readonly bucket?: number;
}

/** The updates of one step where each stage steps its weights by itself. */
export interface LocalUpdates {
  /** Micro-batches of an update: its backwards are followed by a step of the optimizer. */
  readonly every: number;
  /** The optimizer step of the first of them, from 1. */
  readonly first: number;
  /** Of each of them. */
  readonly learningRate: number;
  /**
   * The weights that forwards of the step read, as the number of updates since the pipe was empty;
   * without it the newest when a forward runs.
   */
  readonly version?: number | undefined;
}

/** How weights are updated. */
export interface UpdatePolicy {
  /** Whether the pipe runs empty at the end of each step, which all workers then commit. */
  readonly isFlushed: boolean;
  /** Micro-batches of a data-parallel replica that may be in flight. */
  inFlight(schedule: Schedule): number;
  /** Steps that should begin before the oldest one has ended, to keep the pipe full. */
  stepsAhead(schedule: Schedule): number;
  /** Factor of the loss of a micro-batch: one over the predictions of the update it is for. */
  lossScale(request: StepRequest, predictions: number): number;
  /**
   * What each stage does by itself.
   *
   * @param stepsBefore steps since the pipe was empty.
   */
  localUpdates(
    request: StepRequest,
    schedule: Schedule,
    stepsBefore: number,
  ): LocalUpdates | undefined;
}

/** What both policies without flushes have in common. */
const WITHOUT_FLUSHES = {
  isFlushed: false,
  // Worker 0 holds D micro-batches; one more waits there, so that it need not wait for its credit.
  inFlight: ({ workers }: Schedule) => workers + 1,
  // D − 1 micro-batches follow the last one of a step into the pipe; one step more, so that they
  // are there in time.
  stepsAhead: ({ workers, microBatches }: Schedule) => Math.ceil((workers - 1) / microBatches) + 1,
};

/**
 * The policies by what a schedule says of its weights.
 *
 * - `flush`: W(t+1) = W(t) − η·∇f(W(t)), by all workers at the end of the step.
 * - `every-backward`: PipeDream (Narayanan et al. 2019, section 3.3) updates after every micro-batch,
 *   so a step of N micro-batches is N optimizer steps.
 * - `double-buffered`: PipeDream-2BW (Narayanan et al. 2021, section 3.1) updates once for the N
 *   micro-batches of a step, which are all computed with the weights before the newest that the step
 *   can have: W(t+1) = W(t) − η·∇f(W(t−1)). In an empty pipe there are no weights before the newest,
 *   so the first two steps are computed with the same ones.
 */
export const UPDATE_POLICIES: Readonly<Record<WeightUpdates, UpdatePolicy>> = {
  "flush": {
    isFlushed: true,
    inFlight: ({ injectionLimit }) => injectionLimit,
    stepsAhead: () => 0,
    lossScale: ({ lossScale, predictions }) => lossScale / predictions,
    localUpdates: () => undefined,
  },
  "every-backward": {
    ...WITHOUT_FLUSHES,
    lossScale: (_, predictions) => 1 / predictions,
    localUpdates: ({ update, learningRate }, { microBatches }) => ({
      every: 1,
      first: (update - 1) * microBatches + 1,
      learningRate,
    }),
  },
  "double-buffered": {
    ...WITHOUT_FLUSHES,
    lossScale: ({ predictions }) => 1 / predictions,
    localUpdates: ({ update, learningRate, microBatches }, _, stepsBefore) => ({
      every: microBatches.length,
      first: update,
      learningRate,
      version: Math.max(0, stepsBefore - 1),
    }),
  },
};

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
