/**
 * What runs optimizer steps: the pipeline of actors, or the serial loop that is its oracle.
 *
 * @module
 */

import type {
  Batch,
  DeviceChoice,
  ModelProgram,
  OptimizerOptions,
  StageState,
} from "../kernels/mod.ts";
import type { Schedule, ScheduleOptions } from "../schedules/mod.ts";
import type { StepOutcome } from "./protocol.ts";

/** Takes optimizer steps. Calls must be awaited one after the other. */
export interface Engine {
  /** Trains on the micro-batches of one step, counted from 1. */
  step(step: number, microBatches: readonly Batch[], learningRate: number): Promise<StepOutcome>;
  /** The losses of micro-batches, without training on them. */
  evaluate(microBatches: readonly Batch[]): Promise<readonly Float32Array[]>;
  /** Weights and moments of the whole model. */
  save(): Promise<StageState>;
  /** Frees devices and workers. */
  close(): Promise<void>;
}

/** What an engine is made from. */
export interface EngineOptions {
  /** The compiled model. */
  readonly model: ModelProgram;
  /** First weights by name, and moments where a run is resumed. */
  readonly state: StageState;
  /** Who computes what, when. */
  readonly schedule: Schedule;
  /** The options that the schedule was made with. */
  readonly scheduleOptions: ScheduleOptions;
  /** What computes. */
  readonly device: DeviceChoice;
  /** The optimizer and its settings. */
  readonly optimizer: OptimizerOptions;
}

/** The factor of the loss: one over the predictions of a step. */
export function lossScaleOf({ model, schedule }: EngineOptions): number {
  return 1 / (model.predictions * schedule.microBatches);
}

/**
 * The loss of a step or an evaluation: the samples' losses added in f64 in the order of the
 * micro-batches, divided by the number of predictions.
 */
export function meanLoss(losses: readonly Float32Array[], predictions: number): number {
  let sum = 0;
  for (const samples of losses) for (const loss of samples) sum += loss;
  return sum / (predictions * losses.length);
}

/** The norm of all gradients: sums of squares added in f64 in the order of parameter names. */
export function gradientNorm(squares: ReadonlyMap<string, number>): number {
  let sum = 0;
  for (const name of [...squares.keys()].sort()) sum += squares.get(name)!;
  return Math.sqrt(sum);
}
