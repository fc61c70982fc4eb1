/**
 * What happens in a training run.
 *
 * @module
 */

import type { DeviceChoice, DeviceName, StageMemory } from "../../kernels/mod.ts";
import type { Plan } from "./plan.ts";
import type { TracedAction } from "../pipeline/step.ts";
import type { RuntimeName } from "./options/train_options.ts";
import type { Best } from "./progress/best.ts";

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
    /** For each worker what it did in this step, when; empty unless the run is traced. */
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
    /** As of a step that was taken. */
    readonly traces: readonly (readonly TracedAction[])[];
  }
  | {
    /** A worker was lost, and the run has gone on from the last committed step. */
    readonly type: "failure";
    /** The step that was taken next: what was lost has been made up for. */
    readonly step: number;
    /** Id of the actor that failed first. */
    readonly actor: string;
    /** What happened, in which step, at which action. */
    readonly reason: string;
    /** When, in milliseconds since the epoch. */
    readonly time: number;
  }
  | {
    /** The data has not answered for 30 s; the run goes on when it does. */
    readonly type: "wait";
    /** The step that waits. */
    readonly step: number;
    /** Which of its micro-batches does not come, from 0. */
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
    /** Whether it is kept as the best so far. */
    readonly isBest?: true;
  }
  | {
    readonly type: "end";
    /** Whether `signal` ended the run before its last step. */
    readonly isInterrupted: boolean;
    /** Whether `evaluation.patience` ended it before. */
    readonly isStoppedEarly: boolean;
    /**
     * The best evaluation, where the run asks which it is, and the folder of its checkpoint: null where
     * that was not kept, or lies in another directory.
     */
    readonly best?: Pick<Best, "step" | "loss"> & { readonly checkpoint: string | null };
    readonly device: DeviceName;
    /** The names of the adapters, each once, of a device that has some. */
    readonly adapter?: string;
    /** Threads of each worker within an operation, of a device that can have several. */
    readonly threads?: number;
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
