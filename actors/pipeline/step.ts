/**
 * One optimizer step as its taker sees it: what is asked for, and what it gives.
 *
 * @module
 */

import type { Batch, StageMemory } from "../../kernels/mod.ts";
import type { GradientSquares } from "../commit/gradient_norm.ts";

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
