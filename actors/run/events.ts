/**
 * Events of a training run.
 *
 * @module
 */

import {
  type DeviceChoice,
  type DeviceName,
  learningRateAt,
  type StageMemory,
} from "../../kernels/mod.ts";
import {
  firstLossScale,
  type LossScale,
  type LossScaleState,
  nextLossScale,
} from "../gradients/commit.ts";
import { check, fromZero } from "../options/option.ts";
import type { MpiRunOptions, RuntimeName, TrainOptions } from "../options/train_options.ts";
import type { TracedAction } from "../pipeline/step.ts";
import type { PlaceName } from "../runtime/mod.ts";
import type { EngineOptions } from "./engine.ts";
import type { Plan } from "./plan.ts";
import type { OpenJournal } from "./run_journal.ts";

/** The best evaluation of a run so far, as a checkpoint keeps it. */
export interface Best {
  /** The step after which it was. */
  readonly step: number;
  /** Mean loss of the held-out micro-batches. */
  readonly loss: number;
  /** Evaluations since then, none of them better. */
  readonly since: number;
}

/**
 * The best evaluation after one more.
 *
 * @returns undefined where no loss was a number.
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
  /** The best evaluation, where the run asks which it is. */
  readonly best?: Best | undefined;
}

/** Returns the first progress of a run: step 0, or that of its checkpoint. */
export function firstProgress(
  resume: TrainOptions["resume"],
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
 * The learning rate of each step. A function of the user's is looked at whenever it is asked, for the
 * first step before anything runs.
 *
 * @throws {RangeError} when a schedule would rise, or the first rate is none.
 * @throws {TypeError} when the first rate is no number.
 */
export function rateOf({ learningRate = RATE, steps, resume }: TrainOptions): RateOf {
  if (typeof learningRate === "number") return () => learningRate;
  if (typeof learningRate === "object") {
    const { rate = RATE, schedule = "constant", warmup = 0, minRate = 0 } = learningRate;
    const most = schedule === "constant" ? 0 : rate;
    const all = { rate, schedule, warmup, minRate, steps };
    if (minRate <= most) return (step) => learningRateAt(all, step);
    throw new RangeError(
      `Cannot train: the learning rate at the end must be ${
        schedule === "constant" ? "left out where it is constant" : `at most the first, ${rate}`
      }, received ${minRate}`,
    );
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
 * What happens in a run, in order: one plan, steps and evaluations and checkpoints, one end. Only
 * `wait` may come before the plan.
 */
export type TrainEvent =
  | { readonly type: "plan"; readonly plan: Plan }
  | {
    readonly type: "step";
    readonly step: number;
    readonly loss: number;
    readonly gradNorm: number;
    readonly tokensPerSecond: number;
    /** The learning rate of the step. */
    readonly learningRate: number;
    /** Factor by which the loss was multiplied. */
    readonly lossScale: number;
    /** Predictions of the step: tokens, or samples. */
    readonly predictions: number;
    /** Time that the step took. */
    readonly seconds: number;
    /** Actions of each worker in this step; empty unless the run is traced. */
    readonly traces: readonly (readonly TracedAction[])[];
  }
  | {
    /** A step whose gradients overflowed under the loss scale: no weight has changed. */
    readonly type: "skip";
    readonly step: number;
    readonly loss: number;
    readonly lossScale: number;
    readonly nextLossScale: number;
    readonly learningRate: number;
    readonly predictions: number;
    readonly seconds: number;
    /** Actions of each worker, as in a taken step. */
    readonly traces: readonly (readonly TracedAction[])[];
  }
  | {
    /** A worker was lost, and the run continues from the last committed step. */
    readonly type: "failure";
    /** The next step that was taken. */
    readonly step: number;
    /** Id of the actor that failed first. */
    readonly actor: string;
    /** The failure, with its step and action. */
    readonly reason: string;
    /** When, in milliseconds since the epoch. */
    readonly time: number;
  }
  | {
    /** A worker was lost, and the run continues on the others, with the same bits. */
    readonly type: "resize";
    /** The next step that was taken. */
    readonly step: number;
    /** Reason of the move: a worker was lost. */
    readonly cause: "lost";
    /** Id of the actor that failed first. */
    readonly actor: string;
    /** When, in milliseconds since the epoch. */
    readonly time: number;
    /** Workers before. */
    readonly from: number;
    /** The pipelines that host the logical copies of the model, and their depth. */
    readonly to: { readonly pipelines: number; readonly depth: number; readonly copies: number };
    /** Bytes of weights and moments that were read from the workers that remain. */
    readonly movedBytes: number;
    /** Steps taken again: 1, or 0 if the step was committed or there was none. */
    readonly retaken: number;
    /** Seconds from the notice of the loss until the next step can begin. */
    readonly seconds: number;
  }
  | {
    /** The data has not answered for 30 s; the run continues when it does. */
    readonly type: "wait";
    /** The step that waits. */
    readonly step: number;
    /** Number of the missing micro-batch, from 0. */
    readonly microBatch: number;
  }
  | {
    readonly type: "evaluation";
    readonly step: number;
    readonly loss: number;
    /** The best evaluation so far, this one included, where the run asks which it is. */
    readonly best?: Best;
  }
  | {
    /** A checkpoint has become whole; steps may have been taken since its own. */
    readonly type: "checkpoint";
    readonly step: number;
    readonly path: string;
    /** True if it is kept as the best so far. */
    readonly isBest?: true;
  }
  | {
    readonly type: "end";
    /** True if `signal` ended the run before its last step. */
    readonly isInterrupted: boolean;
    /** True if `evaluation.patience` ended it before. */
    readonly isStoppedEarly: boolean;
    /**
     * Best evaluation, if the run keeps track of it, and the folder of its checkpoint: null if it was
     * not kept or is in another directory.
     */
    readonly best?: Pick<Best, "step" | "loss"> & { readonly checkpoint: string | null };
    readonly device: DeviceName;
    /** The names of the adapters, each once, of a device that has some. */
    readonly adapter?: string;
    /** Threads of each worker within an operation, of a device that can have several. */
    readonly threads?: number;
    /** The library of products in BF16, with its version. */
    readonly matrix?: string;
    /** The device, as {@linkcode openDevice} takes it. */
    readonly choice: DeviceChoice;
    readonly runtime: RuntimeName;
    readonly schedule: string;
    readonly workers: number;
    readonly steps: number;
    readonly seconds: number;
    /** The most activations that each worker held, in units of Ma. */
    readonly peakActivations: readonly number[];
    /** The most weights that each worker held, in units of Mθ, one P-th of the model. */
    readonly weightsHeld: readonly number[];
    /** Bytes that each worker held, where they were counted. */
    readonly memory: readonly StageMemory[] | undefined;
    /** SHA-256 of all parameters' F32 bytes in the order of their names. */
    readonly weightsHash: string;
    /** The last checkpoint's folder. */
    readonly checkpoint: string | null;
    /** The trained weights by name; where workers have written them, read when they are asked for. */
    readonly weights: ReadonlyMap<string, Float32Array>;
  };

/** A run with checked options, defaults and a compiled model. */
export interface PreparedRun extends
  EngineOptions,
  Pick<
    TrainOptions,
    | ("steps" | "data" | "dropLast")
    | ("evaluation" | "resume" | "signal")
    // The configuration of checkpoints is encoded.
    | ("checkpoint" | "snapshots")
  >,
  Required<Pick<TrainOptions, "announce" | "faults" | "retries" | "runtime">> {
  /** The fewest workers of a run that is moved. */
  readonly minWorkers: number;
  /** Micro-batches of one step, all data-parallel replicas together. */
  readonly microBatches: number;
  /** Factor of the loss; undefined if a step that overflows ends the run. */
  readonly lossScale: LossScale | undefined;
  /** The open journal. */
  readonly journal: OpenJournal | undefined;
  /** Isolation of each worker. */
  readonly isolation: PlaceName;
  /** The rank of each worker, where they live on ranks of MPI, and how those are reached. */
  readonly mpi: (MpiRunOptions & { readonly ranks: readonly number[] }) | undefined;
  /** True if the last event has the weights also where no checkpoint holds them. */
  readonly returnsWeights: boolean;
  /** The learning rate of each step. */
  readonly rate: RateOf;
  /** Summary of the run. */
  readonly plan: Plan;
}
