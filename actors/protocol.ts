/**
 * The messages of a training run. A change that an older peer cannot read raises the version.
 *
 * One step: supervisor —Inject→ worker of stage 0 → F → Activation → … → last stage: F, Loss and
 * B → Gradient → … → stage 0: B, Credit → supervisor injects the next. A worker that has done all
 * its B sends GradientsReady; when all have, the supervisor sends Optimize and waits for StepDone.
 *
 * @module
 */

import type { Batch, StageState } from "../kernels/mod.ts";
import type { ActorRef, Down } from "./runtime/mod.ts";

/** Version of these messages. */
export const PROTOCOL_VERSION = 1;

/** What a worker of the pipeline understands. */
export type WorkerMessage =
  /** Who the others are: asked once, before anything else; the reply says that the worker is ready. */
  | {
    readonly type: "Connect";
    readonly supervisor: ActorRef<SupervisorMessage>;
    readonly workers: readonly ActorRef<WorkerMessage>[];
  }
  /** A micro-batch enters stage 0. Its fields travel with the activations to the last stage. */
  | {
    readonly type: "Inject";
    readonly microBatch: number;
    readonly fields: Batch;
    /** Forward only: nothing is kept and no gradient comes back. */
    readonly isEvaluation: boolean;
  }
  /** The output of stage `stage − 1` arrives. */
  | {
    readonly type: "Activation";
    readonly stage: number;
    readonly microBatch: number;
    readonly tensor: Float32Array<ArrayBuffer>;
    readonly fields: Batch;
    readonly isEvaluation: boolean;
  }
  /** The gradient of the output of stage `stage` arrives. */
  | {
    readonly type: "Gradient";
    readonly stage: number;
    readonly microBatch: number;
    readonly tensor: Float32Array<ArrayBuffer>;
  }
  /** To itself: run the next action that the policy picks, after all that has arrived by now. */
  | { readonly type: "Dispatch" }
  /** Every gradient of step `step` is finite: step the optimizer, bucket by bucket. */
  | { readonly type: "Optimize"; readonly step: number; readonly learningRate: number }
  /** Asks for weights and moments; the reply is a {@linkcode StageState}. */
  | { readonly type: "Save" };

/** What the supervisor understands. */
export type SupervisorMessage =
  /** Asks for the workers to be connected; the reply comes when all are ready. */
  | { readonly type: "Start" }
  /** Asks for one optimizer step; the reply is a {@linkcode StepOutcome}. */
  | {
    readonly type: "RunStep";
    readonly step: number;
    readonly microBatches: readonly Batch[];
    readonly learningRate: number;
  }
  /** Asks for the losses of micro-batches without training on them. */
  | { readonly type: "Evaluate"; readonly microBatches: readonly Batch[] }
  /** Asks for weights and moments of the whole model; the reply is a {@linkcode StageState}. */
  | { readonly type: "Save" }
  /** The loss of each sample of a micro-batch. */
  | { readonly type: "Loss"; readonly microBatch: number; readonly losses: Float32Array }
  /** A micro-batch has left the pipeline; another may enter. */
  | { readonly type: "Credit"; readonly microBatch: number }
  /** A worker has all gradients of the step; sums of squares by parameter. */
  | { readonly type: "GradientsReady"; readonly squares: ReadonlyMap<string, number> }
  /** A worker has stepped all its buckets. */
  | { readonly type: "StepDone"; readonly worker: number; readonly peakActivations: number }
  /** A worker is gone. */
  | { readonly type: "WorkerDown"; readonly down: Down };

/** What a step gives. */
export interface StepOutcome {
  /** For each micro-batch the loss of each of its samples. */
  readonly losses: readonly Float32Array[];
  /** Sum of squares of each parameter's gradient, by name. */
  readonly squares: ReadonlyMap<string, number>;
  /** False when a loss or gradient was not finite: then no weight has changed. */
  readonly isCommitted: boolean;
  /** The most activations that each worker has held so far, in units of Ma (one P-th of a model). */
  readonly peakActivations: readonly number[];
}

/** Weights and moments, as they travel. */
export type { StageState };
