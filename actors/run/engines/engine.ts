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
  StateOf,
} from "../../../kernels/mod.ts";
import type { WrittenShard } from "../../checkpoints/shards.ts";
import type { HeldState } from "../../checkpoints/tensors/held_state.ts";
import type { TensorSource } from "../../checkpoints/tensors/tensor_source.ts";
import type { SyncStrategy } from "../../commit/eager_stages.ts";
import type { LinkOptions } from "../../pipeline/links/emulated_link.ts";
import type { StepOutcome, StepRequest } from "../../pipeline/step.ts";
import type { PlanOptions } from "../../pipeline/step_plan.ts";
import type { SupervisorMessage, WorkerMessage } from "../../pipeline/protocol.ts";
import type { SupervisorInit } from "../../pipeline/supervisor/supervisor_init.ts";
import type { WorkerInit } from "../../pipeline/worker/worker_init.ts";
import type { ActorSpec, ObserverSpec, System, Transport } from "../../runtime/mod.ts";

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
  /** Weights and moments of the whole model, all at once. */
  save(): Promise<StageState>;
  /** The same, read from who holds them while no step is under way; absent where `save` must do. */
  readonly held?: HeldState;
  /**
   * Has the workers write weights and moments into a folder, each those that it holds; undefined
   * where checkpoints are made of what `save` gathers.
   *
   * @param folder its absolute path.
   * @param step optimizer steps done.
   */
  write?(folder: string, step: number): Promise<readonly WrittenShard[]>;
  /** Frees devices and workers. */
  close(): Promise<void>;
}

/** How the gradients of copies are added. */
export type ReduceChoice = "deterministic" | "fast" | "mpi";

/** What an engine is made from. */
export interface EngineOptions extends PlanOptions {
  /** The compiled model; for half a micro-batch where the schedule runs backwards in halves. */
  readonly model: ModelProgram;
  /** First weights by name, and moments where a run is resumed, or where they come from. */
  readonly state: StateOf<TensorSource>;
  /** Runs of the kernels for each micro-batch: 2 where backwards run in halves. */
  readonly halves: 1 | 2;
  /** What computes: the workers take them in turn; an engine without workers takes the first. */
  readonly devices: readonly [DeviceChoice, ...DeviceChoice[]];
  /** Whether stand-ins take the place of kernels, and no device is opened. */
  readonly isRehearsed?: boolean | undefined;
  /** Whether workers write checkpoints, each a shard of its own. Default false. */
  readonly isSharded?: boolean | undefined;
  /** How stages store and step their weights. */
  readonly stage: StageOptions;
  /** When the all-reduce of a stage starts. */
  readonly sync: SyncStrategy;
  /** In copy order with one result for any chunks, by ring and Rabenseifner's algorithm, or by MPI. */
  readonly reduce: ReduceChoice;
  /** Buckets of a chunk of the all-reduce, k. */
  readonly coarsening: number;
  /** The most that the norm of all gradients may be; more is scaled down. */
  readonly clip?: number | undefined;
  /** Delays messages between workers as such a link would. */
  readonly link?: LinkOptions | undefined;
  /** What supervises the pipeline, where that is not Troupe's own. */
  readonly supervisor?: ActorSpec<SupervisorInit, SupervisorMessage> | undefined;
  /** What makes a worker, where that is not Troupe's own. */
  readonly worker?: ActorSpec<WorkerInit, WorkerMessage> | undefined;
  /** Limit of the JavaScript heap of each worker that is a process, in MiB; V8's unless given. */
  readonly heapLimitMb?: number | undefined;
  /** How long nobody may be at work before what is waited for counts as stalled, in milliseconds. */
  readonly stallMs: number;
  /** Whether to report when each action ran. */
  readonly isTraced: boolean;
  /** Writes the journal of the run. */
  readonly observer?: ObserverSpec | undefined;
  /** Transports that a system of its own gets. */
  readonly transport?: Transport | readonly Transport[] | undefined;
  /** The actor system that the run lives in and does not end. Default: one of its own. */
  readonly system?: System | undefined;
  /** Seed of the runtime's own draws. */
  readonly seed: number;
}
