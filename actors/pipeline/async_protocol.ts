/**
 * The messages of a run without flushes, where the pipe holds micro-batches of several steps.
 *
 * Supervisor —Inject→ worker of stage 0 → F → Activation → … → last stage: F, Loss and B → Gradient
 * → … → stage 0: B, Credit → supervisor injects the next. A stage steps its optimizer by itself,
 * when its backward says so, and tells of it with Updated. Drain lets the pipe run empty.
 *
 * @module
 */

import type { Batch, MessageArray, StageMemory } from "../../kernels/mod.ts";
import type { LinkMessage } from "./emulated_link.ts";
import type { FromAnyWorker, Stalled, TracedAction } from "./protocol.ts";
import type { ActorRef, Down } from "../runtime/mod.ts";

/** An optimizer step: its number, from 1, and its rate. */
export interface Update {
  readonly step: number;
  readonly learningRate: number;
}

/** What belongs to a micro-batch on every stage, and travels with it. */
export interface UpdateTerms {
  /** Factor of the loss: one over the predictions of the update that the gradient is for. */
  readonly lossScale: number;
  /**
   * The weights to compute with, as the number of updates since the pipe was empty; without it the
   * newest when F runs.
   */
  readonly version?: number | undefined;
  /** The optimizer step after the backward, for the last micro-batch of an update. */
  readonly update?: Update | undefined;
}

/** What a worker sends to its neighbours. */
export type AsyncPeerMessage =
  /** The output of the stage before arrives; without terms it is to be evaluated. */
  | {
    readonly type: "Activation";
    readonly microBatch: number;
    readonly tensor: MessageArray;
    readonly fields: Batch;
    readonly terms?: UpdateTerms | undefined;
  }
  /** The gradient of the stage's output arrives. */
  | { readonly type: "Gradient"; readonly microBatch: number; readonly tensor: MessageArray };

/** What a worker understands. Micro-batches are counted from 0 since the pipe was empty. */
export type AsyncWorkerMessage =
  | AsyncPeerMessage
  | LinkMessage<AsyncPeerMessage>
  /** Who the others are: sent once, before anything else; Ready says that the worker is. */
  | {
    readonly type: "Connect";
    readonly supervisor: ActorRef<AsyncSupervisorMessage>;
    readonly workers: readonly ActorRef<AsyncWorkerMessage>[];
  }
  /** A micro-batch enters stage 0; without terms it is to be evaluated. */
  | {
    readonly type: "Inject";
    readonly microBatch: number;
    readonly fields: Batch;
    readonly terms?: UpdateTerms | undefined;
  }
  /** No more than `end` micro-batches come: run the backwards that are left, and say so. */
  | { readonly type: "Drain"; readonly end: number }
  /** To itself: run the next action, after all that has arrived by now. */
  | { readonly type: "Dispatch" }
  /** Asks what the worker waits for; the reply is a `WorkerReport`. */
  | { readonly type: "Report" }
  /** Asks for weights and moments: Saved brings them. */
  | { readonly type: "Save" };

/** What the supervisor understands; it answers with an `Answer`. */
export type AsyncSupervisorMessage =
  /** Asks for the workers to be connected; the reply comes when all are ready. */
  | { readonly type: "Start" }
  /** Asks for one step, behind those that are under way; the reply is a `StepOutcome`. */
  | {
    readonly type: "RunStep";
    readonly step: number;
    readonly microBatches: readonly Batch[];
    readonly terms: readonly UpdateTerms[];
  }
  /** Asks for an empty pipe; the reply comes when all steps have ended. */
  | { readonly type: "Drain" }
  /** Asks for the losses of micro-batches without training on them, in an empty pipe. */
  | { readonly type: "Evaluate"; readonly microBatches: readonly Batch[] }
  /** Asks for weights and moments of the whole model, in an empty pipe; the reply is a `StageState`. */
  | { readonly type: "Save" }
  | FromAnyWorker
  /** The loss of each sample of a micro-batch. */
  | { readonly type: "Loss"; readonly microBatch: number; readonly losses: Float32Array }
  /** A micro-batch has left the pipeline; another may enter. */
  | { readonly type: "Credit" }
  /** A stage has stepped its optimizer after the backward of a micro-batch. */
  | {
    readonly type: "Updated";
    readonly worker: number;
    readonly microBatch: number;
    /** Sum of squares of each parameter's gradient. */
    readonly squares: ReadonlyMap<string, number>;
    readonly peakActivations: number;
    readonly weights: number;
    readonly memory: StageMemory;
    /** What the worker did since it told last. */
    readonly trace: readonly TracedAction[];
  }
  /** A worker has run all backwards that were left. */
  | { readonly type: "Drained" }
  | Stalled
  /** A worker is gone. */
  | { readonly type: "WorkerDown"; readonly down: Down };
