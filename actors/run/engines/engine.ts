/**
 * What runs optimizer steps: the pipeline of actors, or the serial loop that is its oracle.
 *
 * @module
 */

import type {
  Batch,
  DeviceChoice,
  ModelProgram,
  StageOptions,
  StageState,
  Tie,
} from "../../../kernels/mod.ts";
import { dealMicroBatches } from "../../pipeline/layout.ts";
import type { LinkOptions } from "../../pipeline/emulated_link.ts";
import { policyData } from "../../pipeline/policy_data.ts";
import type { Deal, StepOutcome, StepRequest } from "../../pipeline/protocol.ts";
import type { ObserverSpec, System } from "../../runtime/mod.ts";
import {
  type Schedule,
  type ScheduleDefinition,
  type ScheduleOptions,
  smallerSchedule,
} from "../../../schedules/mod.ts";

/**
 * Takes optimizer steps. Calls must be awaited one after the other, but for steps where the engine
 * runs ahead.
 */
export interface Engine {
  /** Steps that should begin before the oldest one has ended, to keep the pipe full; none unless
   * given. */
  readonly ahead?: number;
  /** Lets the steps that have begun end, without which the last of them need not end. */
  drain?(): Promise<void>;
  /** Trains on the micro-batches of one step. */
  step(request: StepRequest): Promise<StepOutcome>;
  /** The losses of micro-batches, without training on them. */
  evaluate(microBatches: readonly Batch[]): Promise<readonly Float32Array[]>;
  /** Weights and moments of the whole model. */
  save(): Promise<StageState>;
  /** Frees devices and workers. */
  close(): Promise<void>;
}

/**
 * When the all-reduce of a stage starts (Chimera, section 3.2): after the last backward of all
 * stages, after the last backward of this stage, or the latter only where the workers have idle
 * time before their own end, so that it does not keep them from computing.
 */
export type SyncStrategy = "end" | "eager" | "eager-opt";

/** What an engine is made from. */
export interface EngineOptions {
  /** The compiled model; for half a micro-batch where the schedule runs backwards in halves. */
  readonly model: ModelProgram;
  /** First weights by name, and moments where a run is resumed. */
  readonly state: StageState;
  /** Who computes what, when, in each data-parallel replica. */
  readonly schedule: Schedule;
  /** The options that the schedule was made with. */
  readonly scheduleOptions: ScheduleOptions;
  /** What makes it for fewer micro-batches too; by its name unless given. */
  readonly scheduleDefinition?: ScheduleDefinition | undefined;
  /** Data-parallel replicas, W. */
  readonly replicas: number;
  /** Runs of the kernels for each micro-batch: 2 where backwards run in halves. */
  readonly halves: 1 | 2;
  /** Predictions of a micro-batch. */
  readonly predictionsOf: (batch: Batch) => number;
  /** What computes. */
  readonly device: DeviceChoice;
  /** Whether stand-ins take the place of kernels, and no device is opened. */
  readonly isRehearsed?: boolean | undefined;
  /** How stages store and step their weights. */
  readonly stage: StageOptions;
  /** When the all-reduce of a stage starts. */
  readonly sync: SyncStrategy;
  /** In copy order with one result for any chunks, or by ring and Rabenseifner's algorithm. */
  readonly reduce: "deterministic" | "fast";
  /** Buckets of a chunk of the all-reduce, k. */
  readonly coarsening: number;
  /** The most that the norm of all gradients may be; more is scaled down. */
  readonly clip?: number | undefined;
  /** Delays messages between workers as such a link would. */
  readonly link?: LinkOptions | undefined;
  /** Limit of the JavaScript heap of each worker that is a process, in MiB; V8's unless given. */
  readonly heapLimitMb?: number | undefined;
  /** How long nobody may be at work before what is waited for counts as stalled, in milliseconds. */
  readonly stallMs: number;
  /** Whether to report when each action ran. */
  readonly isTraced: boolean;
  /** Writes the journal of the run. */
  readonly observer?: ObserverSpec | undefined;
  /** The actor system that the run lives in and does not end. Default: one of its own. */
  readonly system?: System | undefined;
  /** Seed of the runtime's own draws. */
  readonly seed: number;
}

/** Who computes which micro-batches of a step of `count` micro-batches. */
export function dealOf(
  { schedule, scheduleOptions, scheduleDefinition, replicas }: EngineOptions,
  count: number,
): Deal {
  const counts = dealMicroBatches(count, replicas);
  const schedules = counts.map((n) =>
    n === schedule.microBatches
      ? schedule
      : smallerSchedule(schedule, scheduleOptions, n, scheduleDefinition)
  );
  let first = 0;
  const shares = schedules.map(({ replicaOf }, r) => {
    const share = { first, pipeOf: replicaOf };
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
 * The loss of a step or an evaluation: the samples' losses added in f64 in the order of the
 * micro-batches, divided by the number of predictions of all of them.
 */
export function meanLoss(losses: readonly Float32Array[], predictions: number): number {
  let sum = 0;
  for (const samples of losses) for (const loss of samples) sum += loss;
  return sum / predictions;
}

/** The norm of all gradients: sums of squares added in f64 in the order of parameter names. */
export function gradientNorm(squares: ReadonlyMap<string, number>): number {
  let sum = 0;
  for (const name of [...squares.keys()].sort()) sum += squares.get(name)!;
  return Math.sqrt(sum);
}

/** The norm of all gradients of a step: the mean of those of its updates. */
export function meanNorm(updates: StepOutcome["updates"]): number {
  return updates.reduce((sum, squares) => sum + gradientNorm(squares), 0) / updates.length;
}

/** Whether all losses, and the sums of squares of all updates, are finite. */
export function areFinite(
  losses: StepOutcome["losses"],
  updates: StepOutcome["updates"],
): boolean {
  return losses.every((samples) => samples.every(Number.isFinite)) &&
    updates.every((squares) => squares.values().every(Number.isFinite));
}

/** The ties whose parameters are trained: the gradients of both ends are added. */
export function trainedTies({ ties, parameters }: ModelProgram): readonly Tie[] {
  const frozen = new Set(parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name));
  return ties.filter(([canonical]) => !frozen.has(canonical));
}

/** A state without the weights and moments of aliases, as checkpoints keep it. */
export function withoutAliases(
  { weights, moments }: StageState,
  ties: ModelProgram["ties"],
): StageState {
  const aliases = ties.map(([, alias]) => alias);
  const keep = (values: ReadonlyMap<string, Float32Array>) =>
    new Map(
      [...values].filter(([key]) =>
        !aliases.some((alias) => key === alias || key.startsWith(`${alias}.`))
      ),
    );
  return { weights: keep(weights), moments: keep(moments) };
}

/** Keeps the clip factor finite where the norm is zero, as in PyTorch. */
const CLIP_EPSILON = 1e-6;

/** What clipping multiplies all gradients by, as PyTorch's `clip_grad_norm_` does. */
export function clipFactor(
  clip: number | undefined,
  squares: ReadonlyMap<string, number>,
  lossScale: number,
): number {
  if (clip === undefined) return 1;
  return Math.min(1, clip / (gradientNorm(squares) / lossScale + CLIP_EPSILON));
}
