/**
 * One optimizer step: its request, its shares of micro-batches and its outcome.
 *
 * [Note: flushes] With a flush the pipe runs empty at the end of each step; then all copies of all
 * stages have their gradients, and the step is committed by all workers or by none. Without flushes,
 * stages step their weights one by one while others still compute and the next step has begun, so they
 * cannot agree on a step. The outcome of a step then reports a loss or gradient that is not finite after
 * it has reached weights.
 *
 * @module
 */

import type { Batch, DropoutKey, StageMemory, StageProgram } from "../../kernels/mod.ts";
import { type JobShare, shareOf } from "../../kernels/internal.ts";
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
import { followList, halvesOf, hostedSchedule, type HostLayout } from "../../schedules/internal.ts";
import type { CopyDigest, GradientSquares } from "../gradients/commit.ts";
import { pipelineCount } from "./layout.ts";

/** The policy of a worker: its actions, or the name by which every isolate makes its schedule. */
export type PolicyData =
  | { readonly actions: readonly Action[]; readonly policy: ListPolicy }
  | { readonly name: string; readonly options: ScheduleOptions; readonly worker: number };

/** Returns the policy of one worker of a schedule as plain data. */
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

/** Returns the list of a policy, if it has one. */
export const listsOf = (data: PolicyData): ActionList[] =>
  "actions" in data ? [ActionList.from(data.actions)] : [];

/** Makes a policy for one step. */
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
  /** The factor of the loss that keeps FP16 gradients from vanishing. */
  readonly lossScale: number;
  /** The parts of jobs, each with its own optimizer step; absent if the run has no jobs. */
  readonly jobs?: readonly JobShare[] | undefined;
}

/** A result that was wrong, found by the verification of a step. */
export interface Doubt {
  /** Description of the error, for reports. */
  readonly what: string;
  /** The worker that computed it; absent if it may also have changed in transit. */
  readonly worker?: number;
}

/** Options of the verification of results. */
export interface Verification {
  /** `sums` compares copies; `actions` also checks messages, and runs forwards again. */
  readonly mode: "sums" | "actions";
  /** One forward in this many runs again. */
  readonly every: number;
}

/** The outcome of a step. */
export interface StepOutcome {
  /** The digests of the sums of all copies, if they are verified. */
  readonly digests?: readonly CopyDigest[];
  /** Other errors that were found: the step was not committed. */
  readonly doubts?: readonly Doubt[];
  /** For each micro-batch, the loss of each of its samples. */
  readonly losses: readonly Float32Array[];
  /**
   * For each update of the step, the sum of squares of each parameter's gradient, by name: one update,
   * in PipeDream one for each micro-batch; none if the step was not committed.
   */
  readonly updates: readonly GradientSquares[];
  /**
   * False if a loss or gradient was not finite: then no weight has changed; without flushes all have.
   */
  readonly isCommitted: boolean;
  /** For each worker, its peak of activations so far, in units of Ma (one P-th of a model). */
  readonly peakActivations: readonly number[];
  /** For each worker, its peak of weights so far, in units of one P-th of a model. */
  readonly weights: readonly number[];
  /** For each worker, the bytes that it holds; empty if they are not counted. */
  readonly memory?: readonly StageMemory[];
  /** For each worker, its actions; empty unless the run is traced. */
  readonly traces: readonly (readonly TracedAction[])[];
}

/**
 * An action of a worker. Times are from the clock of its host; the events of a run have those of
 * several hosts aligned.
 */
export interface TracedAction {
  /**
   * An action such as `2F0`, by the stage and the micro-batch of its replica (of all replicas in
   * `--runtime serial`); `reduce 2` for a part of the all-reduce of stage 2; `optimizer`.
   */
  readonly name: string;
  /** Its start, in milliseconds since the epoch. */
  readonly start: number;
  /** Its end, in milliseconds since the epoch. */
  readonly end: number;
  /**
   * The time at which the worker received its last input from another actor, in milliseconds since
   * the epoch: after its current action, if it computes. Absent for an action without inputs.
   */
  readonly arrived?: number;
  /** The time at which its last output was sent to another worker; absent without outputs. */
  readonly sent?: number;
  /** Other actions (F, B, I or W) whose inputs had arrived. */
  readonly waiting?: number;
  /** The stage of an all-reduce or optimizer step of one stage. */
  readonly stage?: number;
  /** The chunk of the all-reduce whose part arrived. */
  readonly chunk?: number;
  /** The bucket that the optimizer stepped. */
  readonly bucket?: number;
}

/** The updates of one step, if each stage steps its weights by itself. */
export interface LocalUpdates {
  /** Micro-batches of an update. */
  readonly every: number;
  /** The optimizer step of the first update, from 1. */
  readonly first: number;
  /** The learning rate of each update. */
  readonly learningRate: number;
  /**
   * The weights that forwards of the step read, as the number of updates since the pipe was empty; the
   * newest weights unless given.
   */
  readonly version?: number | undefined;
}

/** A policy of weight updates. */
interface UpdatePolicy {
  /** True if the pipe runs empty at the end of each step, which all workers then commit. */
  readonly isFlushed: boolean;
  /** Micro-batches of a data-parallel replica that may be in flight. */
  inFlight(schedule: Schedule): number;
  /** Micro-batches that may wait at the first worker of a replica, so that it does not wait for a credit. */
  ahead(schedule: Schedule): number;
  /** Steps that should begin before the oldest one has ended, to keep the pipe full. */
  stepsAhead(schedule: Schedule): number;
  /** Returns the factor of the loss of a micro-batch: one over the predictions of its update. */
  lossScale(request: StepRequest, predictions: number): number;
  /**
   * Returns the updates that each stage makes by itself.
   *
   * @param stepsBefore Steps since the pipe was empty.
   */
  localUpdates(
    request: StepRequest,
    schedule: Schedule,
    stepsBefore: number,
  ): LocalUpdates | undefined;
}

/** The common part of both policies without flushes. */
const WITHOUT_FLUSHES = {
  isFlushed: false,
  inFlight: ({ workers }: Schedule) => workers,
  ahead: () => 1,
  // D − 1 micro-batches follow the last one of a step into the pipe; one more step makes them be there
  // in time.
  stepsAhead: ({ workers, microBatches }: Schedule) => Math.ceil((workers - 1) / microBatches) + 1,
};

/**
 * The policies by the weight updates of a schedule.
 *
 * - `flush`: W(t+1) = W(t) − η·∇f(W(t)), by all workers at the end of the step.
 * - `every-backward`: PipeDream (Narayanan et al. 2019, section 3.3) updates after every micro-batch,
 *   so a step of N micro-batches is N optimizer steps.
 * - `double-buffered`: PipeDream-2BW (Narayanan et al. 2021, section 3.1) updates once for the N
 *   micro-batches of a step, which all use the weights before the newest:
 *   W(t+1) = W(t) − η·∇f(W(t−1)). An empty pipe has only the newest weights, so the first two steps use
 *   the same weights.
 */
export const UPDATE_POLICIES: Readonly<Record<WeightUpdates, UpdatePolicy>> = {
  "flush": {
    isFlushed: true,
    inFlight: ({ injectionLimit }) => injectionLimit,
    // A worker counts only the micro-batches that enter there.
    ahead: (schedule) => {
      const { injectionLimit, microBatches } = schedule;
      return pipelineCount(schedule) > 1
        ? 0
        : Math.min(injectionLimit, microBatches - injectionLimit);
    },
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
  /** For each of its micro-batches, the pipeline that computes it. */
  readonly pipeOf: readonly number[];
}

/** The micro-batches of each replica in a step. */
export interface StepShares {
  /** For each data-parallel replica, its micro-batches. */
  readonly shares: readonly MicroBatchShare[];
  /** For each worker, its policy, if the step is smaller than that of the schedule. */
  readonly policies?: readonly PolicyData[] | undefined;
}

/** The data of a step that the actors get before its micro-batches. */
export interface StepPlan extends StepShares {
  /** The factor of the loss of each micro-batch, by global id. */
  readonly lossScales: readonly number[];
  /** The updates of the step, if each stage steps its weights by itself. */
  readonly updates?: LocalUpdates | undefined;
  /** The key of its dropout, apart from micro-batches; absent without dropout. */
  readonly dropout?: StepDropout | undefined;
}

/** The key of the dropout of a step. */
export type StepDropout = Omit<DropoutKey, "microBatch" | "half">;

/** The run whose copies a schedule hosts. */
export interface HostedRun
  extends Pick<PlanOptions, "schedule" | "scheduleOptions" | "scheduleDefinition" | "replicas"> {
  readonly layout: HostLayout;
}

/** Options of a step planner. */
export interface PlanOptions {
  /** The run whose copies the schedule hosts; absent if the copies have their own workers. */
  readonly hosted?: HostedRun | undefined;
  /** The schedule of each data-parallel replica. */
  readonly schedule: Schedule;
  /** The options that the schedule was made with. */
  readonly scheduleOptions: ScheduleOptions;
  /** The definition that makes it for fewer micro-batches. Default: found by its name. */
  readonly scheduleDefinition?: ScheduleDefinition | undefined;
  /** Data-parallel replicas, W. */
  readonly replicas: number;
  /** Returns the number of predictions of a micro-batch. */
  readonly predictionsOf: (batch: Batch) => number;
  /** The compiled model. */
  readonly model: Pick<StageProgram, "programs">;
  /** Keys dropout, with the step and the micro-batch. */
  readonly seed: number;
  /** Returns the activations of a micro-batch as a part of those of the largest, if limits count bytes. */
  readonly sizeOf?: ((batch: Batch) => number) | undefined;
}

/** Plans one step after another, from an empty pipe on. */
export class StepPlanner {
  /** Steps since the pipe was empty. */
  #steps = 0;

  constructor(private readonly options: PlanOptions) {}

  /** Returns the plan of the next step. */
  next(request: StepRequest): StepPlan {
    const { options, options: { schedule, predictionsOf } } = this, { microBatches } = request;
    const shared = shareStep(options, microBatches.length);
    const policy = UPDATE_POLICIES[schedule.updates];
    return {
      ...shared,
      ...sizedPolicies(options, microBatches, shared),
      lossScales: microBatches.map((batch, m) => {
        const { predictions } = request.jobs ? shareOf(request.jobs, m) : request;
        return policy.lossScale({ ...request, predictions }, predictionsOf(batch));
      }),
      updates: policy.localUpdates(request, schedule, this.#steps++),
      ...dropoutOf(options, request),
    };
  }

  /** Notes that the pipe is empty, so that only the newest weights remain. */
  drained(): void {
    this.#steps = 0;
  }
}

/** Returns the policies of a step whose limits count bytes; no field if they count micro-batches. */
function sizedPolicies(
  { schedule, scheduleOptions, sizeOf, hosted }: PlanOptions,
  microBatches: readonly Batch[],
  { shares }: StepShares,
): Pick<StepShares, "policies"> {
  if (!sizeOf || hosted) return {};
  const policies = shares.flatMap(({ first, pipeOf: { length } }) => {
    const sizes = microBatches.slice(first, first + length).map(sizeOf);
    return policiesOf(schedule, { ...scheduleOptions, microBatches: length, sizes });
  });
  return { policies };
}

/** Returns the key of the dropout of a step; no field if there is no dropout. */
export function dropoutOf(
  { model, seed }: Pick<PlanOptions, "model" | "seed">,
  { step }: StepRequest,
): Pick<StepPlan, "dropout"> {
  return model.programs.some(({ masks }) => masks) ? { dropout: { seed, step } } : {};
}

/**
 * Shares a step of `count` micro-batches among the replicas: consecutive ids, and sizes that differ
 * by at most 1.
 */
export function shareStep(
  { schedule, scheduleOptions, scheduleDefinition, replicas, hosted }:
    & Omit<HostedRun, "layout">
    & Pick<PlanOptions, "hosted">,
  count: number,
): StepShares {
  if (hosted) return hostShares(hosted, count).shares;
  if (!UPDATE_POLICIES[schedule.updates].isFlushed) {
    // Steps follow each other without a gap, so a smaller one does not change the order of a worker.
    return { shares: [{ first: 0, pipeOf: new Array(count).fill(0) }] };
  }
  const firstOf = (replica: number) => Math.floor(replica * count / replicas);
  const schedules = Array.from({ length: replicas }, (_, r) => {
    const own = firstOf(r + 1) - firstOf(r);
    if (own === schedule.microBatches) return schedule;
    return smallerSchedule(schedule, scheduleOptions, own, scheduleDefinition);
  });
  const shares = schedules.map(({ pipelineOf: pipeOf }, r) => ({ first: firstOf(r), pipeOf }));
  if (schedules.every((one) => one === schedule)) return { shares };
  const policies = schedules.flatMap((one) =>
    policiesOf(one, { ...scheduleOptions, microBatches: one.microBatches })
  );
  return { shares, policies };
}

/** Returns the policy of each worker. */
const policiesOf = (schedule: Schedule, options: ScheduleOptions): PolicyData[] =>
  schedule.placement.map((_, worker) => policyData(schedule, options, worker));

/** Returns why the copies of a schedule would have other bits on other workers; undefined if not. */
export function hostingRefusal(schedule: Schedule): string | undefined {
  const { name, updates, slices = 1 } = schedule;
  const must = updates !== "flush"
    ? "have a flush"
    : slices > 1 || halvesOf(schedule) > 1
    ? "compute whole micro-batches"
    : undefined;
  return must &&
    `Cannot move a run to other workers: the schedule must ${must}, received ${name}`;
}

/**
 * Shares the micro-batches of a step among pipelines that host the copies of a run. The copy of each
 * micro-batch is that of the run, also in a step with fewer micro-batches.
 *
 * @returns the shares, and the schedule of each pipeline.
 */
export function hostShares(
  { layout: { pipelines, depth }, ...run }: HostedRun,
  count: number,
): { readonly shares: StepShares; readonly schedules: readonly Schedule[] } {
  const { shares } = shareStep(run, count), each = run.replicas / pipelines;
  const pipes = pipelineCount(run.schedule);
  const groups = Array.from(
    { length: pipelines },
    (_, p) => shares.slice(p * each, (p + 1) * each),
  );
  const schedules = groups.map((group) =>
    hostedSchedule(group.map(({ pipeOf }) => pipeOf), pipes, depth)
  );
  return {
    schedules,
    shares: {
      shares: schedules.map(({ pipelineOf }, p) => ({
        first: groups[p]![0]!.first,
        pipeOf: pipelineOf,
      })),
      policies: schedules.flatMap((one) => policiesOf(one, run.scheduleOptions)),
    },
  };
}
