/**
 * The progress of a training run, its learning rates and its events; and the types of a prepared run.
 *
 * @module
 */

import type { Best, Plan, TrainEvent } from "../options/train_events.ts";
import { type Batch, learningRateAt, type Model } from "../../kernels/mod.ts";
import { assertInput, type LoraOptions, measureSamples, refusal } from "../../kernels/internal.ts";
import {
  assertFiniteData,
  assertScaled,
  firstLossScale,
  type LossScale,
  type LossScaleState,
  meanLoss,
  meanNorm,
  nextLossScale,
} from "../gradients/commit.ts";
import { check, fromZero } from "../options/option.ts";
import type { MpiRunOptions, RunOptions } from "../options/train_options.ts";
import type { StepOutcome, StepRequest } from "../pipeline/step.ts";
import type { PlaceName, Transport } from "../runtime/mod.ts";
import type { Engine, EngineOptions } from "./engine.ts";
import type { OpenBlackBox, OpenJournal } from "./run_journal.ts";

/**
 * Returns the best evaluation after one more; undefined if no loss was a number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const first = nextBest(undefined, { step: 10, loss: 2.5 });
 * const worse = nextBest(first, { step: 20, loss: 2.5 });
 * assert.deepEqual(worse, { step: 10, loss: 2.5, since: 1 });
 * assert.deepEqual(nextBest(worse, { step: 30, loss: 2 }), { step: 30, loss: 2, since: 0 });
 * ```
 */
export function nextBest(
  best: Best | undefined,
  { step, loss }: Pick<Best, "step" | "loss">,
): Best | undefined {
  const isBetter = Number.isFinite(loss) && (best === undefined || loss < best.loss);
  if (isBetter) return { step, loss, since: 0 };
  return best && { ...best, since: best.since + 1 };
}

/** Progress of a run, as a checkpoint keeps it. */
export interface Progress {
  /** Steps of the data that are done. */
  readonly step: number;
  /** Steps of the optimizer that were taken. */
  readonly update: number;
  /** Predictions used so far; 0 if the checkpoint does not record them. */
  readonly predictions: number;
  /** The loss scale of the next step. */
  readonly lossScale: LossScaleState;
  /** The best evaluation, if the run keeps track of it. */
  readonly best?: Best | undefined;
}

/** Returns the first progress of a run: step 0, or that of its checkpoint. */
export function firstProgress(
  resume: RunOptions["resume"],
  lossScale: LossScale = 1,
): Progress {
  const step = resume?.step ?? 0;
  const kept = resume?.config?.["progress"] as Partial<Progress> | undefined;
  const state = lossScale === "dynamic" ? kept?.lossScale : undefined;
  return {
    step,
    update: kept?.update ?? step,
    predictions: kept?.predictions ?? 0,
    lossScale: state ?? firstLossScale(lossScale),
    best: kept?.best,
  };
}

/**
 * Returns the progress after one more step, taken or skipped.
 *
 * @param taken Result of the step and its number of predictions.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const first = firstProgress(undefined, "dynamic");
 * const skipped = nextProgress(first, { isTaken: false, predictions: 8 }, "dynamic");
 * assert.deepEqual([skipped.step, skipped.update, skipped.lossScale.scale], [1, 0, 32768]);
 * assert.equal(nextProgress(skipped, { isTaken: true, predictions: 8 }, "dynamic").update, 1);
 * ```
 */
export function nextProgress(
  { step, update, predictions, lossScale, best }: Progress,
  taken: { readonly isTaken: boolean; readonly predictions: number },
  scaling: LossScale = 1,
): Progress {
  return {
    step: step + 1,
    update: taken.isTaken ? update + 1 : update,
    predictions: taken.isTaken ? predictions + taken.predictions : predictions,
    lossScale: nextLossScale(scaling, lossScale, taken.isTaken),
    best,
  };
}

/** Returns the progress for a checkpoint, without a constant loss scale, which is an option. */
export function keptProgress(
  { lossScale, ...progress }: Progress,
  scaling: LossScale | undefined,
): Partial<Progress> {
  return scaling === "dynamic" ? { ...progress, lossScale } : progress;
}

/** The learning rate of a step, counted from 1. */
type RateOf = (step: number) => number;

/** The learning rate, or the highest of a schedule, unless the options say another. */
const RATE = 1e-3;

/**
 * Returns the learning rate of each step. A function of the user's is checked at each call, and for
 * the first step before anything runs.
 *
 * @throws {RangeError} when the rate of a schedule would rise, or the first rate is out of its range.
 * @throws {TypeError} when the first rate is not a number.
 */
export function rateOf({ learningRate = RATE, steps, resume }: RunOptions): RateOf {
  if (typeof learningRate === "number") return () => learningRate;
  if (typeof learningRate === "object") {
    const { rate = RATE, schedule = "constant", warmup = 0, minRate = 0 } = learningRate;
    const most = schedule === "constant" ? 0 : rate;
    const all = { rate, schedule, warmup, minRate, steps: learningRate.steps ?? steps };
    if (minRate <= most) return (step) => learningRateAt(all, step);
    const right = schedule === "constant"
      ? "left out where it is constant"
      : `at most the first, ${rate}`;
    throw refusal("train", `the learning rate at the end must be ${right}`, minRate);
  }
  const checked = (step: number) => {
    const rate = learningRate(step);
    check(fromZero, rate, { cannot: `Cannot run step ${step}`, name: "the learning rate" });
    return rate;
  };
  const first = (resume?.step ?? 0) + 1;
  if (first <= steps) checked(first);
  return checked;
}

/**
 * Returns the number of predictions of a step.
 *
 * @throws {RangeError} when the model counts none.
 */
export function countPredictions(
  { predictionsOf }: Pick<PreparedRun, "predictionsOf">,
  microBatches: readonly Batch[],
): number {
  const count = microBatches.reduce((sum, batch) => sum + predictionsOf(batch), 0);
  const must = "the model's predictions of a step must be a positive number";
  assertInput(count > 0 && count < Infinity, "train", must, count);
  return count;
}

/** A step that has ended. */
export interface TakenStep {
  readonly request: StepRequest;
  readonly outcome: StepOutcome;
  /** Time to its end from its beginning, or from the end of the step before if that is later. */
  readonly seconds: number;
}

/** A job with its defaults. */
export interface RunJob
  extends Required<Pick<NonNullable<RunOptions["jobs"]>[number], "name" | "data">> {
  readonly lora: LoraOptions;
  readonly adapter: string | undefined;
  readonly seed: number;
  readonly steps: number;
  /** The step of the run in which it begins. */
  readonly start: number;
  readonly rate: RateOf;
  /** Micro-batches of its steps. */
  readonly microBatches: number;
  /** Its progress in the checkpoint that the run resumes; undefined if it has none. */
  readonly kept: KeptJob | undefined;
}

/** Progress of a job in a checkpoint. */
export interface KeptJob extends Pick<RunJob, "lora"> {
  /** Steps that are done. */
  readonly step: number;
  /** True if it has no more data, or has failed. */
  readonly isOver: boolean;
  /** State of its data. */
  readonly data?: unknown;
}

/** The hosts of a run, on which its workers live. */
export interface RunHosts extends AsyncDisposable {
  /** The transport to them. */
  readonly transport: Transport;
  /** Waits for a host for each of `workers`. @throws {Error} when no host joins. */
  gather(workers: number): Promise<void>;
  /** Returns the number of hosts that do not want to leave. */
  available(): number;
  /** Returns an engine that lets hosts leave between its steps, but not all of them. */
  releasing(engine: Engine): Engine;
  /** Lets the hosts leave that have asked to. */
  release(): void;
}

/** A run with checked options, defaults and a compiled model. */
export interface PreparedRun extends
  EngineOptions,
  Pick<
    RunOptions,
    | ("steps" | "data" | "dropLast")
    | ("evaluation" | "resume" | "signal" | "out")
    // The configuration of checkpoints is encoded.
    | ("checkpoint" | "snapshots")
  >,
  Required<
    Pick<RunOptions, "announce" | "faults" | "retries" | "returnWeights" | "runtime">
  > {
  /** The fewest workers of a run that is moved. */
  readonly minWorkers: number;
  /** Micro-batches of one step, all data-parallel replicas together. */
  readonly microBatches: number;
  /** Factor of the loss; undefined if a step that overflows ends the run. */
  readonly lossScale: LossScale | undefined;
  /** The open journal. */
  readonly journal: OpenJournal | undefined;
  /** The open black box. */
  readonly box?: OpenBlackBox | undefined;
  /** Isolation of each worker. */
  readonly isolation: PlaceName;
  /** True if a spare process waits for the next loss. */
  readonly hasSpare: boolean;
  /** The rank of each worker, where they live on ranks of MPI, and how those are reached. */
  readonly mpi: (MpiRunOptions & { readonly ranks: readonly number[] }) | undefined;
  /** The meeting place of the run's hosts. */
  readonly nats: RunOptions["nats"];
  /** The hosts that have joined. */
  readonly lent?: RunHosts;
  /** The learning rate of each step. */
  readonly rate: RateOf;
  /** Its jobs, if it has any. */
  readonly jobs: readonly RunJob[] | undefined;
  /** Metrics that the model returns with its losses. */
  readonly metrics: Model["metrics"];
  /** Summary of the run. */
  readonly plan: Plan;
}

/**
 * Returns the event of a step, or of the part of a job in it.
 *
 * @param scale the loss scale before it.
 * @throws {NonFiniteError} when the step was not taken and the loss scale cannot be the reason.
 */
export function stepEvent(
  { schedule, lossScale: scaling, model, metrics: own }: PreparedRun,
  step: number,
  { request, outcome, seconds }: TakenStep,
  scale: LossScaleState,
): TrainEvent & { readonly type: "step" | "skip" } {
  const { predictions, learningRate, lossScale } = request;
  const { isCommitted, updates, traces } = outcome;
  const { losses, metrics } = measureSamples(outcome.losses, own, predictions);
  const loss = meanLoss(losses, predictions);
  const common = { step, loss, learningRate, lossScale, predictions, seconds };
  if (!isCommitted) {
    const what = `take step ${step}: loss and gradients`;
    const how = { isScaled: scaling !== undefined, isLost: schedule.updates !== "flush" };
    assertFiniteData(model, request.microBatches, what, loss, how);
    assertScaled(schedule, scaling, scale, step, loss);
    const { scale: next } = nextLossScale(scaling ?? 1, scale, false);
    return { type: "skip", ...common, nextLossScale: next, traces };
  }
  const gradNorm = meanNorm(updates), tokensPerSecond = predictions / seconds;
  return { type: "step", ...common, gradNorm, tokensPerSecond, ...metrics && { metrics }, traces };
}
