/**
 * Events of `train()`: their types, with the plan of a run.
 *
 * @module
 */

import type { DeviceChoice, DeviceName, StageMemory } from "../../kernels/mod.ts";
import type { TracedAction } from "../pipeline/step.ts";

/** Place of the actors: Deno workers or processes, one isolate, no actors, ranks of MPI, or hosts. */
export type RuntimeName = "workers" | "local" | "serial" | "mpi" | "nats";

/** The cores of this machine and the workers that share them. */
export interface CoreShare {
  /** Threads of each worker within an operation. */
  readonly threads: number;
  /** Workers that compute on these cores at a time. */
  readonly workersHere: number;
  /** Cores of this machine that this process may use. */
  readonly cores: number;
}

/** Memory of a worker, in bytes. */
export interface WorkerMemory extends StageMemory {
  /** The worker, within a data-parallel replica: all replicas are alike. */
  readonly worker: number;
  /** True if `device` and `host` are upper bounds: the order of messages decides the actual peak. */
  readonly isBound: boolean;
}

/** Bytes of an actor in addition to its stages. */
export interface ActorBytes {
  /** Values between the operations of a model while it runs, at most. */
  readonly transient: number;
  /** Compiled models, and what binds them to tensors. */
  readonly sessions: number;
  /** Activations in transit; their gradients return in the same arrays. */
  readonly messages: number;
  /** Fields of micro-batches. */
  readonly fields: number;
  /** Gradients of copies that are being added. */
  readonly sums: number;
  /** Weights and moments: a snapshot in memory, and pieces that are read to be written or hashed. */
  readonly state: number;
  /** Deno, V8, and the library that computes. */
  readonly runtime: number;
}

/** Bytes of a run in addition to the stages of its workers. */
export interface RunMemory {
  /** Bytes of each worker of a data-parallel replica; all replicas are equal. */
  readonly workers: readonly ActorBytes[];
  /** Bytes of the supervisor and its program. */
  readonly supervisor: ActorBytes;
  /** All bytes of the run, stages included: the memory use that the system should report. */
  readonly totalBytes: number;
}

/** One stage of the plan. */
export interface StagePlan {
  /** Its number. */
  readonly stage: number;
  /** The workers that hold a copy of it. */
  readonly workers: readonly number[];
  /** Names of its layers; a block that is whole on it has one. */
  readonly layers: readonly string[];
  /** Numbers in its parameters, frozen ones included. */
  readonly parameters: number;
  /** Its share of the model's estimated work, 0 to 1. */
  readonly costShare: number;
  /** Bytes of activations that one micro-batch keeps on it from F to B. */
  readonly activationBytes: number;
}

/** Summary of a run before it starts. */
export interface Plan {
  /** The model's name. */
  readonly model: string;
  /** Numbers in the parameters of the whole model, frozen ones included. */
  readonly parameters: number;
  /** Numbers in its trained parameters. */
  readonly trained: number;
  /** The schedule's name. */
  readonly schedule: string;
  /** Name of the runtime. */
  readonly runtime: string;
  /** Name of the device. */
  readonly device: string;
  /** The names of the adapters, each once, of a device that has some. */
  readonly adapter?: string;
  /** The library of products in BF16, with its version. */
  readonly matrix?: string;
  /** Threads of each worker within an operation, and the cores that they share. */
  readonly share: CoreShare;
  /** Data-parallel replicas, each with separate workers. */
  readonly replicas: number;
  /** Micro-batches of a step in each data-parallel replica. */
  readonly microBatches: number;
  /** Bytes that each worker of a data-parallel replica will hold at its peak. */
  readonly memory: readonly WorkerMemory[];
  /** Bytes of all else that the run will hold, and of all together. */
  readonly run: RunMemory;
  /** The stages in order. */
  readonly stages: readonly StagePlan[];
  /** The layers of each as `layout` takes them: `E,4|4|4|3,H`. */
  readonly layout: string;
}

/** The best evaluation of a run so far, as a checkpoint keeps it. */
export interface Best {
  /** The step after which it was. */
  readonly step: number;
  /** Mean loss of the held-out micro-batches. */
  readonly loss: number;
  /** Evaluations since then, none of them better. */
  readonly since: number;
}

/** A step that was taken or skipped. */
export interface ComputedStep {
  /** The step, from 1. */
  readonly step: number;
  /** Mean loss of its micro-batches, in nats for each prediction. */
  readonly loss: number;
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

/**
 * An event of a run. In order: one plan; steps, evaluations, checkpoints and other events; one end. Only
 * `wait` can precede the plan.
 */
export type TrainEvent =
  | { readonly type: "plan"; readonly plan: Plan }
  | ComputedStep & {
    readonly type: "step";
    /** The job whose step it is, if the run has jobs. */
    readonly job?: string;
    readonly gradNorm: number;
    readonly tokensPerSecond: number;
    /** Metrics of the model over the micro-batches of the step, before its update. */
    readonly metrics?: Readonly<Record<string, number>>;
  }
  | ComputedStep & {
    /** A step whose gradients overflowed under the loss scale: no weight has changed. */
    readonly type: "skip";
    readonly nextLossScale: number;
  }
  | {
    /** A worker was lost, and the run continues from the last committed step. */
    readonly type: "failure";
    /** The next step that was taken; after the last step, that one. */
    readonly step: number;
    /** Id of the actor that failed first. */
    readonly actor: string;
    /** The failure, with its step and action. */
    readonly reason: string;
    /** When, in milliseconds since the epoch. */
    readonly time: number;
  }
  | {
    /** Workers were lost or have joined, and the run continues on others, with the same bits. */
    readonly type: "resize";
    /** The next step that was taken; after the last step, that one. */
    readonly step: number;
    /** Reason of the move. */
    readonly cause: "lost" | "joined";
    /** Id of the actor that failed first; absent if workers have joined. */
    readonly actor?: string;
    /** When, in milliseconds since the epoch. */
    readonly time: number;
    /** Workers before. */
    readonly from: number;
    /** The pipelines that host the logical copies of the model, and their depth. */
    readonly to: { readonly pipelines: number; readonly depth: number; readonly copies: number };
    /** Bytes of weights and moments that were read from the workers before. */
    readonly movedBytes: number;
    /** Steps taken again: 1, or 0 if the step was committed or there was none. */
    readonly retaken: number;
    /** Seconds from the notice until the next step can begin. */
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
    /** Metrics of the model over the held-out micro-batches. */
    readonly metrics?: Readonly<Record<string, number>>;
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
    /** A job has ended; other jobs may continue. */
    readonly type: "job";
    readonly job: string;
    /** Its last step. */
    readonly step: number;
    /** `weightsHash` of a run with this job only. */
    readonly weightsHash: string;
    /** Its folder in PEFT's format; null without `out`. */
    readonly adapter: string | null;
    /** A and B of its adapter, by name. */
    readonly weights: ReadonlyMap<string, Float32Array>;
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
