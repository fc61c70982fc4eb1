/**
 * Options of `train()`: their types.
 *
 * @module
 */

import type {
  Batch,
  DeviceSpec,
  LearningRate,
  Model,
  PartialOptimizer,
  Precision,
  Recompute,
  StateOf,
} from "../../kernels/mod.ts";
import {
  type ListPolicy,
  type Schedule,
  type ScheduleDefinition,
  type ScheduleOptions,
} from "../../schedules/mod.ts";
import type { Checkpoint } from "../checkpoints/format.ts";
import type { TensorSource } from "../checkpoints/tensors.ts";
import type { SyncStrategy } from "../gradients/sync.ts";
import type { LinkOptions } from "../pipeline/links.ts";
import type { SupervisorMessage, WorkerMessage } from "../pipeline/protocol.ts";
import type { SupervisorInit } from "../pipeline/supervisor_state.ts";
import type { WorkerFault, WorkerInit } from "../pipeline/worker_state.ts";
import type { ActorSpec, PlaceName, System, Transport } from "../runtime/mod.ts";
import type { SnapshotPlace } from "./option.ts";

/** Micro-batches one after the other. */
export type Batches = Iterable<Batch> | AsyncIterable<Batch>;

/**
 * Micro-batches that can be begun anywhere, so that a run which goes on from a checkpoint need not
 * have those made again that it has learnt from.
 *
 * @example Rows by their number, and draws whose state is kept
 * ```ts
 * import type { DataSource } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const rows: DataSource = {
 *   *from(microBatch) {
 *     for (let i = microBatch; i < 100; i++) yield { row: Int32Array.of(i) };
 *   },
 * };
 * const walk = (at = 0): DataSource => ({
 *   *from(_, state = 0) {
 *     for (at = state as number;;) yield { at: Int32Array.of(at = (7 * at + 3) % 101) };
 *   },
 *   state: () => at,
 * });
 *
 * const first = (data: DataSource, state?: unknown) => [...data.from(2, state) as never][0];
 * assert.deepEqual(first(rows), { row: Int32Array.of(2) });
 * ```
 */
export interface DataSource {
  /**
   * The micro-batches from number `microBatch` on: 0 is the first of step 1, in global order. May be
   * called more than once, as a look at the first one may come before.
   *
   * @param state what {@linkcode DataSource.state} returned, out of JSON, when `microBatch` of them
   * had been taken; undefined where no checkpoint says it.
   */
  from(microBatch: number, state?: unknown): Batches;
  /**
   * What `from` has to know beside the number: something that JSON can say, at most 65,536 characters
   * of it. Asked for when the last micro-batch of a step has been taken, before the next one is; a
   * checkpoint after that step keeps it.
   */
  state?(): unknown;
}

/**
 * Micro-batches in global order. Of an iterable those of steps already done are made and dropped.
 */
export type Data = Batches | DataSource;

/** Whether data can be begun anywhere. */
export const isSource = (data: Data): data is DataSource =>
  typeof (data as Partial<DataSource>)?.from === "function";

/** Whether it can be iterated. */
export const isIterable = (data: unknown): data is Batches => {
  const { [Symbol.iterator]: sync, [Symbol.asyncIterator]: async } = Object(data);
  return typeof sync === "function" || typeof async === "function";
};

/** What was measured in a step that was taken or skipped, or in an evaluation after it. */
export interface Metrics {
  /** A step was taken; it was skipped, as gradients overflowed; held-out data was evaluated. */
  readonly type: "step" | "skip" | "evaluation";
  /** The step, from 1; 0 for an evaluation before the first. */
  readonly step: number;
  /** When, in milliseconds since the epoch. */
  readonly time: number;
  /** Seconds since this program began the run, or went on with it. */
  readonly seconds: number;
  /** Mean loss of the step's micro-batches, in nats a prediction. */
  readonly loss?: number;
  /** Norm of all gradients, before clipping. */
  readonly gradNorm?: number;
  /** The learning rate of the step. */
  readonly learningRate?: number;
  /** Factor of the loss in the step. */
  readonly lossScale?: number;
  /** Predictions (tokens, or samples) learnt from since step 1. */
  readonly tokens: number;
  /** Predictions of the step, a second. */
  readonly tokensPerSecond?: number;
  /** Mean loss of the held-out micro-batches. */
  readonly evalLoss?: number;
  /** e to the power of it. */
  readonly perplexity?: number;
  /** Bytes that each worker holds, on device and host, where they are counted. */
  readonly memory?: readonly number[];
  /** Resident memory of this program in bytes; processes that it has started are not in it. */
  readonly rss: number;
}

/** Where actors run: a Deno worker for each, one isolate for all, or no actors at all. */
export type RuntimeName = "workers" | "local" | "serial" | "mpi";

/** What `train()` is asked to do. */
export interface TrainOptions {
  /** What trains. */
  readonly model: Model;
  /**
   * Micro-batches in global order: the first `microBatches` are those of step 1. After a resume data
   * that has `from` begins where it is to go on; of other data the micro-batches of the steps already
   * done are made and dropped. Each is copied as it comes, so its buffers may be used again for the
   * next. The event `wait` reports a micro-batch that does not come for 30 s.
   */
  readonly data: Data;
  /** Optimizer steps of the whole run, those before a resume included. */
  readonly steps: number;
  /** Micro-batches of one step, N. Default 4. */
  readonly microBatches?: number;
  /** Workers of the pipeline, D. Default 1. */
  readonly workers?: number;
  /**
   * A schedule's name, the definition of one's own, or one that is made, for the same workers and
   * micro-batches. Default `1f1b`.
   */
  readonly schedule?: string | ScheduleDefinition | Schedule;
  /** Options of the schedule: `pipelineLimit`, `order` and the like; it must read all of them. */
  readonly scheduleOptions?: Partial<ScheduleOptions>;
  /**
   * How a schedule's lists are followed: `elastic` runs a later action where the next is not ready,
   * within what the lists need or `scheduleOptions.activationLimit`. Default: the schedule's own.
   */
  readonly policy?: ListPolicy["name"] | undefined;
  /**
   * The layers of each stage, such as `E,4|4|4|3,H`: `E` the embedding, `H` the head, and blocks or
   * other layers by their number, between which `|` begins the next stage ({@linkcode readLayout}).
   * Weights have the same bits in all layouts, but for a schedule without flushes, where they depend
   * on the stage of a layer. `schedule`: the cut with which a step of the schedule takes least time,
   * by the work of the layers ({@linkcode partitionForSchedule}). Default `auto`: stages of nearly
   * equal work.
   */
  readonly layout?: string | undefined;
  /** Data-parallel replicas of the pipeline, W; each runs `microBatches` a step. Default 1. */
  readonly replicas?: number;
  /** When the all-reduce of a stage starts. Default `end`. */
  readonly sync?: SyncStrategy;
  /**
   * How gradients are added: in copy order, with fewer bytes moved, or by `MPI_Iallreduce`, which
   * wants `runtime: "mpi"`. Default `deterministic`.
   */
  readonly reduce?: ReduceChoice;
  /** Elements of an optimizer bucket. Default: those of the device. */
  readonly bucketSize?: number | undefined;
  /** Buckets of a chunk of the all-reduce, k. Default 4. */
  readonly coarsening?: number | undefined;
  /** Delays messages between workers as this link would. Default: none. */
  readonly link?: LinkOptions | undefined;
  /** What weights, activations and gradients are stored in. Default `fp32`. */
  readonly precision?: Precision;
  /** Factor of the loss, so that FP16 gradients do not vanish. Default `dynamic` with FP16, else 1. */
  readonly lossScale?: number | "dynamic" | undefined;
  /** The most that the norm of all gradients may be; more is scaled down. Default 0: any. */
  readonly clip?: number | undefined;
  /** Leaves out a last step that has fewer micro-batches than the others. Default false. */
  readonly dropLast?: boolean | undefined;
  /**
   * Keeps only the input of every so many layers for the backward, ac; a block of a transformer is
   * one. Default: `recompute` says.
   */
  readonly recomputeInterval?: number | undefined;
  /** Keeps master weights and moments in host memory, by buckets on the device. Default false. */
  readonly offload?: boolean | undefined;
  /** Refuses a run that needs more bytes than this on a worker. Default: unlimited. */
  readonly memoryLimitBytes?: number | undefined;
  /** Default `auto`: webgpu where there is a GPU, else native where it loads, else wasm. */
  readonly device?: DeviceSpec;
  /**
   * Numbers of the adapters that workers compute on, one after the other and then from the first
   * again. Default: all GPUs; where there is none, the first of the others.
   */
  readonly adapters?: readonly number[] | undefined;
  /**
   * Threads of each worker within an operation, on the native device; `auto` gives each its share of
   * the cores of this machine. Some bits depend on how many there are. Default 1.
   */
  readonly threads?: number | "auto" | undefined;
  /**
   * Default `workers`. With `mpi` every rank of the job calls `train` with the same options: rank 0
   * gets its events, the others none, and return when it is over.
   */
  readonly runtime?: RuntimeName;
  /** How `runtime: "mpi"` finds its ranks. */
  readonly mpi?: MpiRunOptions | undefined;
  /** Default `none`. */
  readonly recompute?: Recompute;
  /**
   * Default AdamW with betas 0.9 and 0.999, ε 1e-8, weight decay 0.01. A setting that is left out has
   * its default: these of AdamW, and of `{ kind: "sgd" }` momentum 0 and weight decay 0.
   */
  readonly optimizer?: PartialOptimizer;
  /**
   * A constant rate, a schedule of it, or a function that gives that of each step, counted from 1
   * also after a resume: it must depend on nothing else. In an MPI job rank 0's is asked. Default
   * 1e-3. Fields of a schedule that are left out have these defaults: `rate` 1e-3, `schedule`
   * constant, `warmup` 0, `minRate` 0, `steps` those of the run, always.
   */
  readonly learningRate?: number | Partial<LearningRate> | ((step: number) => number);
  /** Seed of the first weights. Default 1. */
  readonly seed?: number;
  /** First weights in place of the model's own or drawn ones: by name, or a safetensors file ({@linkcode readWeights}). */
  readonly weights?: ReadonlyMap<string, Float32Array> | string | undefined;
  /**
   * Where a run goes on: the steps done, and weights and moments, as a checkpoint gives them; or where
   * they lie ({@linkcode locateCheckpoint}), so that each worker reads its own.
   */
  readonly resume?: {
    readonly step: number;
    readonly state: StateOf<TensorSource>;
    readonly shapes?: Checkpoint["shapes"];
    readonly config?: Readonly<Record<string, unknown>>;
    /**
     * The checkpoint's folder. One outside of `checkpoint.directory` begins that, which then must
     * hold no checkpoints.
     */
    readonly path?: string;
  } | undefined;
  /** Held-out micro-batches and after how many steps they are evaluated. Default: none. */
  readonly evaluation?: {
    readonly every: number;
    readonly batches: readonly Batch[];
    /**
     * Whether to evaluate before the first step too; that evaluation counts for nothing else. Default
     * false.
     */
    readonly atStart?: boolean;
    /**
     * Ends the run after this number of evaluations in succession that are no better than the best.
     * Default: unlimited.
     */
    readonly patience?: number | undefined;
  } | undefined;
  /**
   * Where checkpoints go, after how many steps, and what their `config.json` says. Weights and moments
   * are read piece by piece before the next step begins, and made durable while it runs; where each
   * rank writes a part, that is durable before. A directory that is removed meanwhile is made again.
   * Default: none are written.
   */
  readonly checkpoint?: {
    /**
     * One run's alone: where another has it, or has left checkpoints there, this one is refused,
     * unless it goes on from these by `resume`, or removes them by `overwrite`.
     */
    readonly directory: string;
    /**
     * Removes the checkpoints that are there before the first step; with a `resume` from one of
     * them, those that are later. Default false.
     */
    readonly overwrite?: boolean | undefined;
    /** Default: at the end only. */
    readonly every?: number | undefined;
    /**
     * How many of the newest stay, counted by their names; older ones in the directory are removed
     * when a newer one is whole. Default: all.
     */
    readonly keep?: number | undefined;
    /**
     * Whether a checkpoint is written whenever an evaluation is better than all before it, those before
     * a resume included, and the last such one is kept, whatever `keep` is: `best.json` in the
     * directory names it. Default false.
     */
    readonly keepBest?: boolean | undefined;
    /** Default: an empty object. */
    readonly config?: Readonly<Record<string, unknown>>;
  } | undefined;
  /** Ends the run after the step under way, or the steps where more than one is, with a checkpoint. */
  readonly signal?: AbortSignal;
  /** Parameters that keep their first values. Default: none. */
  readonly frozen?: (name: string) => boolean;
  /** How often each worker may fail within ten minutes before the run ends. Default 3. */
  readonly retries?: number;
  /**
   * Where the state lies that a run goes on from when a worker fails: one copy in memory, taken anew
   * every 10 steps, or one on disk every 100 steps, in the folder for checkpoints or a temporary one,
   * removed at the end. Default: in memory up to 256 MiB, else on disk where the program may write.
   * Without retries, and where ranks write checkpoints, there is none.
   */
  readonly snapshots?: SnapshotPlace | undefined;
  /**
   * Whether the event `end` has the weights where no checkpoint holds them: they are then gathered in
   * memory. Default true.
   */
  readonly returnWeights?: boolean | undefined;
  /**
   * Whether each worker is a Deno worker (default), or a process that can be killed; or the name of
   * another transport.
   */
  readonly isolation?: Exclude<PlaceName, "local"> | undefined;
  /** Transports that `isolation` may name beside those that every system has. */
  readonly transport?: Transport | readonly Transport[];
  /**
   * What supervises the pipeline in place of Troupe's own: an actor of your own that takes the same
   * messages, such as one around `PIPELINE_SUPERVISOR`. It is trusted as the program is.
   */
  readonly supervisor?: ActorSpec<SupervisorInit, SupervisorMessage> | undefined;
  /** What makes each worker in place of Troupe's own, such as an actor around `PIPELINE_WORKER`. */
  readonly worker?: ActorSpec<WorkerInit, WorkerMessage> | undefined;
  /** Limit of the JavaScript heap of each worker that is a process, in MiB. Default: V8's. */
  readonly heapLimitMb?: number | undefined;
  /**
   * How long no worker may be at work, nor a message on a link, while a step, an evaluation or a
   * save waits for them, in milliseconds. A kernel may take any time. Default 60,000.
   */
  readonly stallMs?: number;
  /** What workers are asked to suffer, the first in the first attempt: for tests of recovery. */
  readonly faults?: readonly WorkerFault[];
  /** Whether step events say when each action ran, on which worker. Default false. */
  readonly trace?: boolean;
  /** Writes down every message and step of the actors. Default: none. */
  readonly journal?: RunJournal | undefined;
  /**
   * The actor system that the run lives in, such as a simulated one; one run at a time. Default: one
   * of its own.
   */
  readonly system?: System | undefined;
  /**
   * Told what was measured in each step and evaluation, before its event: for files, charts and
   * trackers. What it throws ends the run.
   */
  readonly metrics?: ((metrics: Metrics) => void) | undefined;
  /** Told in words: which device is used and why, what is fetched, and what is waited for. */
  readonly announce?: (line: string) => void;
}

/** How a run uses MPI. */
export interface MpiRunOptions {
  /** MPI's library; by default that of the launcher, by the name that Linux systems give it. */
  readonly library?: string | undefined;
  /** The rank of each worker. Default: a rank for each, in order. */
  readonly map?: readonly number[] | undefined;
  /**
   * The interface on which ranks announce messages to each other: its name, its address or its
   * network, such as 10.1.0.0/16. By default 127.0.0.1 on one host; on several the one network that
   * they share.
   */
  readonly interface?: string | undefined;
  /**
   * Whether rank 0 reads and writes all files of weights, as it does where a journal is written.
   * Default: each rank those of its stages, in a folder that all hosts share.
   */
  readonly gather?: boolean | undefined;
}

/** How the gradients of copies are added. */
export type ReduceChoice = "deterministic" | "fast" | "mpi";

/** What is asked of a journal. */
export interface RunJournal {
  /** The file. A run that has to start its workers again goes on in `FILE.2`, and so on. */
  readonly path: string;
  /** Whether messages are kept too, so that one worker can be replayed alone. Default false. */
  readonly payloads?: boolean | undefined;
  /** What makes the run again, as JSON can say it. */
  readonly configuration?: unknown;
  /** Absolute URLs of the modules of the program, beside those of the actors: these and all that they
   * import are hashed. */
  readonly program?: readonly string[] | undefined;
  /**
   * What a file that takes no more, as on a full disk, does to the run: it goes on without a journal,
   * which is announced once (default), or it ends with a checkpoint and an error.
   */
  readonly whenFull?: "go-on" | "stop" | undefined;
}
