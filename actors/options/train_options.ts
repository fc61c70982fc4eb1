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
import type { LoraOptions } from "../../kernels/internal.ts";
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
import type { Data, ModelComponent } from "./model_definition.ts";
import type { RuntimeName, TrainEvent } from "./train_events.ts";
import type { SnapshotPlace } from "./option.ts";

/** Measurements of a step, of a skipped step, or of an evaluation. */
export interface Metrics {
  /** A step, a step that was skipped because gradients overflowed, or an evaluation. */
  readonly type: "step" | "skip" | "evaluation";
  /** The step, from 1; 0 for an evaluation before the first. */
  readonly step: number;
  /** The job whose step it is, if the run has jobs. */
  readonly job?: string;
  /** Time in milliseconds since the epoch. */
  readonly time: number;
  /** Seconds since this program started or resumed the run. */
  readonly seconds: number;
  /** Mean loss of the step's micro-batches, in nats for each prediction. */
  readonly loss?: number;
  /** Norm of all gradients, before clipping. */
  readonly gradNorm?: number;
  /** The learning rate of the step. */
  readonly learningRate?: number;
  /** Factor of the loss in the step. */
  readonly lossScale?: number;
  /** Predictions (tokens or samples) used since step 1. */
  readonly tokens: number;
  /** Predictions of the step for each second. */
  readonly tokensPerSecond?: number;
  /** Mean loss of the held-out micro-batches. */
  readonly evalLoss?: number;
  /** `Math.exp(evalLoss)`. */
  readonly perplexity?: number;
  /** Metrics of the model by name: of the step's micro-batches, or of those held out. */
  readonly metrics?: Readonly<Record<string, number>>;
  /** Bytes of each worker, on device and host, if they are counted. */
  readonly memory?: readonly number[];
  /** Resident memory of this program in bytes, without the processes that it started. */
  readonly rss: number;
}

/** Options of `train()`. */
export interface TrainOptions {
  /**
   * Model to train, or its definition: then `data.samples` fixes the samples of a micro-batch, and
   * {@linkcode loadModel} takes the same definition.
   */
  readonly model: Model | ModelComponent;
  /**
   * Micro-batches in global order: the first `microBatches` are those of step 1. A resumed run calls
   * `from` with the first micro-batch that it needs; of an iterable it makes and drops the earlier
   * ones. Each micro-batch is copied, so its buffers can be reused. The micro-batches of a step are
   * asked for while workers train on the step before. The event `wait` reports data that takes longer
   * than 30 s. Required unless `jobs` is given.
   */
  readonly data?: Data;
  /** Optimizer steps of the whole run, including those before a resume. Required without `epochs`. */
  readonly steps?: number;
  /**
   * Number of passes over the data, rounded down to whole steps; the data must have `from` and
   * `length`, like that of `Dataset.batches`.
   */
  readonly epochs?: number | undefined;
  /** Micro-batches of one step, N. Default 4. */
  readonly microBatches?: number;
  /** Workers of the pipeline, D. Default 1. */
  readonly workers?: number;
  /**
   * Name of a schedule, your own definition, or a schedule for the same micro-batches, whose number of
   * workers replaces `workers`. Default `message-driven`: with two or more workers BFW, with at most D
   * activations on a worker and at most 2 micro-batches of a stage between I and W.
   */
  readonly schedule?: string | ScheduleDefinition | Schedule;
  /** Options of the schedule, such as `pipelineLimit`; the schedule must know each of them. */
  readonly scheduleOptions?: Partial<ScheduleOptions>;
  /**
   * Policy over a schedule's lists: `elastic` runs a later action if the next one is not ready,
   * within the memory of the lists or `scheduleOptions.activationLimit`. Default: the schedule's.
   */
  readonly policy?: ListPolicy["name"] | undefined;
  /**
   * Layers of each stage, such as `E,4|4|4|3,H`: `E` is the embedding, `H` the head, a number counts
   * blocks or other layers, and `|` starts the next stage. All layouts give the same bits, except
   * with a schedule without flushes. `schedule` chooses the layout with the shortest step, by the
   * work of the layers ({@linkcode partitionForSchedule}). Default `auto`: nearly equal work.
   */
  readonly layout?: string | undefined;
  /** Data-parallel replicas of the pipeline, W; each runs `microBatches` per step. Default 1. */
  readonly replicas?: number;
  /** Start of the all-reduce of a stage. Default `end`. */
  readonly sync?: SyncStrategy;
  /**
   * All-reduce algorithm: sums in copy order, fewer bytes, or `MPI_Iallreduce`, which needs
   * `runtime: "mpi"`. Default `deterministic`.
   */
  readonly reduce?: ReduceChoice;
  /** Elements of an optimizer bucket. Default: chosen by the device. */
  readonly bucketSize?: number | undefined;
  /** Buckets of a chunk of the all-reduce, k. Default 4. */
  readonly coarsening?: number | undefined;
  /** Delays messages between workers as this link would. Default: none. */
  readonly link?: LinkOptions | undefined;
  /**
   * Type of stored weights, activations and gradients, or `bf16`: products of dense layers with factors
   * in BF16, all else in FP32. Default `fp32`.
   */
  readonly precision?: Precision;
  /** Path of oneDNN's library, for `bf16`. Default: the installed one. */
  readonly onednn?: string | undefined;
  /** Factor of the loss, so that FP16 gradients do not vanish. Default `dynamic` for FP16, otherwise 1. */
  readonly lossScale?: number | "dynamic" | undefined;
  /** Limit of the norm of all gradients; larger gradients are scaled down. Default 0: no limit. */
  readonly clip?: number | undefined;
  /** Leaves out a last step with too few micro-batches. Default false. */
  readonly dropLast?: boolean | undefined;
  /**
   * Trains samples of different lengths as they are: a micro-batch may have any eighth of the model's
   * `length` for all its samples, the least that holds the longest. Default false.
   */
  readonly lengths?: boolean | undefined;
  /**
   * Keeps the input of every n-th layer for the backward, where a transformer block is one layer.
   * Default: follows from `recompute`.
   */
  readonly recomputeInterval?: number | undefined;
  /** Keeps master weights and moments in host memory and steps them bucket by bucket. Default false. */
  readonly offload?: boolean | undefined;
  /** Refuses a run that needs more bytes than this on a worker. Default: unlimited. */
  readonly memoryLimitBytes?: number | undefined;
  /** Device. Default `auto`: webgpu if a GPU is found, otherwise native if it loads, otherwise wasm. */
  readonly device?: DeviceSpec;
  /**
   * Numbers of the adapters that workers use in turn. Default: all GPUs, or the first other adapter
   * if there is no GPU.
   */
  readonly adapters?: readonly number[] | undefined;
  /**
   * Threads of each worker within an operation, on the native device; `auto` divides the cores of
   * this machine. Some bits depend on this number. Default 1.
   */
  readonly threads?: number | "auto" | undefined;
  /**
   * Default `workers`. `serial`, and `local` with one worker, block the program's thread while a kernel
   * computes, which takes half the CPU time for small models. With `mpi` every rank of the job calls `train` with the same options: rank 0
   * gets the events; the other ranks get none and return when the run ends.
   */
  readonly runtime?: RuntimeName;
  /** Options of `runtime: "mpi"`. */
  readonly mpi?: MpiRunOptions | undefined;
  /** Options of `runtime: "nats"`, which must be given there. */
  readonly nats?: {
    /** URL of the server. */
    readonly url: string;
    /** Path of the leader's credentials. */
    readonly credentials: string;
    /** Name of the run, as in its credentials. */
    readonly run: string;
    /** Time within which a host for each worker must join, in milliseconds. Default 30,000. */
    readonly joinMs?: number | undefined;
    /** Time after which a silent host is lost, in milliseconds. Default 10,000. */
    readonly timeoutMs?: number | undefined;
    /**
     * Hosts in addition to those of the workers, for which the start waits until `joinMs` is over.
     * Each takes the place of a lost host. Default 0; hosts that join anyway are spares, too.
     */
    readonly spares?: number | undefined;
  } | undefined;
  /** Activations that the backward recomputes. Default `none`. */
  readonly recompute?: Recompute;
  /**
   * Default: AdamW with betas 0.9 and 0.999, ε 1e-8 and weight decay 0.01, which are also the
   * defaults of omitted settings. Those of `{ kind: "sgd" }` are momentum 0 and weight decay 0, and
   * those of `{ kind: "lion" }` betas 0.9 and 0.99 and weight decay 0.
   */
  readonly optimizer?: PartialOptimizer;
  /**
   * A constant rate, a schedule, or a function of the step, counted from 1 even after a resume; the
   * result must depend on the step only. In an MPI job rank 0 calls it. Default 1e-3. Defaults of
   * omitted fields of a schedule: `rate` 1e-3, `schedule` constant, `warmup` 0, `minRate` 0, and
   * `steps` of the run.
   */
  readonly learningRate?: number | Partial<LearningRate> | ((step: number) => number);
  /** Seed of the first weights. Default 1. */
  readonly seed?: number;
  /** Initial weights, by name or as a safetensors file ({@linkcode readWeights}). Default: the model's, or random. */
  readonly weights?: ReadonlyMap<string, Float32Array> | string | undefined;
  /**
   * Run to continue from its newest checkpoint: its folder, or its name below `runs/`. If it is `out`
   * and has no checkpoint yet, the run starts. Or a checkpoint: its step, weights and moments, or the
   * places of these in files, so that each worker reads its own ({@linkcode readCheckpoint}).
   */
  readonly resume?: string | {
    readonly step: number;
    readonly state: StateOf<TensorSource>;
    readonly shapes?: Checkpoint["shapes"];
    readonly config?: Readonly<Record<string, unknown>>;
    /**
     * Folder of the checkpoint. If it is outside `checkpoint.directory`, that directory must hold no
     * checkpoints.
     */
    readonly path?: string;
  } | undefined;
  /** Held-out micro-batches, and the number of steps between evaluations. Default: none. */
  readonly evaluation?: {
    readonly every: number;
    readonly batches: readonly Batch[];
    /**
     * Evaluates before the first step too; `patience` and `keepBest` ignore that evaluation. Default
     * false.
     */
    readonly atStart?: boolean;
    /**
     * Evaluates the average of the weights that `optimizer.ema` makes. Default false.
     */
    readonly ema?: boolean | undefined;
    /**
     * Ends the run after this number of successive evaluations without a new best one. Default:
     * unlimited.
     */
    readonly patience?: number | undefined;
  } | undefined;
  /**
   * Folder of this run only, for its checkpoints, `run.json` and `metrics.jsonl`: `troupe plot`,
   * `compare` and `dashboard` read it. With `jobs` it also has a folder in PEFT's format for each job.
   * Without `signal`, the first Ctrl-C or SIGTERM ends the run after the steps in progress, with a
   * checkpoint; another one ends the program. Default: that of `resume` by name, otherwise none.
   */
  readonly out?: string | undefined;
  /**
   * Directory of checkpoints, steps between them, and the contents of their `config.json`. Weights and
   * moments are read in pieces before the next step starts, and made durable while it runs; if each
   * rank writes a part, before it starts. A directory that is removed during the run is made again.
   * Default: no checkpoints.
   */
  readonly checkpoint?: {
    /**
     * Directory of this run only. A directory that another run uses is refused, and so is one with
     * checkpoints, except with `resume` from one of them or with `overwrite`. Must be given without
     * `out`, and left out with it.
     */
    readonly directory?: string | undefined;
    /**
     * Removes existing checkpoints before the first step; with a `resume` from one of them, the later
     * ones. Default false.
     */
    readonly overwrite?: boolean | undefined;
    /** Steps between checkpoints. Default: only at the end. */
    readonly every?: number | undefined;
    /**
     * Number of newest checkpoints to keep, by their names; older ones are removed when a newer one is
     * complete. Default: all.
     */
    readonly keep?: number | undefined;
    /**
     * Writes a checkpoint when an evaluation is better than all earlier ones, including those before a
     * resume, and keeps the best one regardless of `keep`: `best.json` names it. Default false.
     */
    readonly keepBest?: boolean | undefined;
    /** Contents of `config.json`. Default: an empty object. */
    readonly config?: Readonly<Record<string, unknown>>;
  } | undefined;
  /** Ends the run after the steps in progress, with a checkpoint. */
  readonly signal?: AbortSignal;
  /** Returns whether a parameter keeps its initial values. Default: none does. */
  readonly frozen?: (name: string) => boolean;
  /**
   * Trains an adapter and freezes all other parameters: each dense layer whose name is or ends in a
   * `target`, such as `c_attn`, gets α/r·BA added to its weight (LoRA, Hu et al. 2021). `alpha` is
   * `rank` by default. A depends on the seed, B begins with zeros. Default: none.
   */
  readonly lora?: LoraOptions | undefined;
  /**
   * Folder of an adapter in PEFT's format, from which training begins: its A and B, and its settings
   * if `lora` is not given. Default: none.
   */
  readonly adapter?: string | undefined;
  /**
   * At most 8 jobs, each of which trains an adapter with its own data. Their micro-batches share one
   * pipeline of frozen weights. Each job has the losses and the adapter that it has when trained alone
   * with the same options, bit for bit. A job that fails does not end the others; its error ends the
   * run. A run that resumes a checkpoint of jobs may leave some out, and others may begin in it.
   */
  readonly jobs?:
    | readonly {
      /** Name of its events, and of its folder in `out`. */
      readonly name: string;
      readonly data: Data;
      /** Default: that of the run. */
      readonly lora?: LoraOptions | undefined;
      /** Folder of an adapter in PEFT's format, from which it begins. Default: none. */
      readonly adapter?: string | undefined;
      /** Default: that of the run. */
      readonly learningRate?: TrainOptions["learningRate"];
      /** Seed of its A and of its dropout. Default: that of the run. */
      readonly seed?: number | undefined;
      /** Default: that of the run. */
      readonly steps?: number | undefined;
      /** Step of the run in which it begins. Default 1. */
      readonly start?: number | undefined;
    }[]
    | undefined;
  /**
   * Number of failures of each worker within ten minutes after which it starts again. Default 3.
   */
  readonly retries?: number;
  /**
   * Reaction to the loss of a worker: all workers restart from the last snapshot (`restart`), or the
   * run continues from the memory of the others, with the same bits, and takes at most one step again
   * (`resize`). A lost thread or process is replaced up to `retries` times, a lost host if another has
   * joined; otherwise the run moves to the workers that remain. Default: `resize` where each stage has
   * copies and the run can move, otherwise `restart`.
   */
  readonly failover?: "restart" | "resize" | undefined;
  /**
   * Mirrors stages that have one copy only: the next worker gets their summed gradients and steps a
   * mirror of their weights and moments, so a run survives a loss from memory. Default false.
   */
  readonly buddy?: boolean | undefined;
  /** Minimum number of workers after a move; with fewer, the run ends with a checkpoint. Default 1. */
  readonly minWorkers?: number | undefined;
  /**
   * Verification of results. `sums` compares the sums of gradients of all copies before each commit,
   * and weights and moments every fourth step. `actions` also checks messages between workers,
   * and repeats some forwards. A step in doubt is repeated; a worker with two wrong results is
   * excluded if the run can move. Default none.
   */
  readonly verify?: "none" | "sums" | "actions" | undefined;
  /** With `actions`, one in this number of forwards is repeated. Default 4. */
  readonly verifyEvery?: number | undefined;
  /**
   * Place of the snapshot from which a run continues when a worker fails: memory, every 10 steps, or
   * disk, every 100 steps, in the folder of checkpoints or a temporary folder, removed at the
   * end. Default: memory up to 256 MiB, otherwise disk if the program may write. No snapshots are taken
   * without retries or if ranks write checkpoints.
   */
  readonly snapshots?: SnapshotPlace | undefined;
  /**
   * Gathers the weights in memory for the event `end` if no checkpoint holds them. Default true.
   */
  readonly returnWeights?: boolean | undefined;
  /**
   * Isolation of each worker: a Deno worker (default), a process, which can be killed, or the name of
   * another transport.
   */
  readonly isolation?: Exclude<PlaceName, "local"> | undefined;
  /** Additional transports for `isolation`. */
  readonly transport?: Transport | readonly Transport[];
  /**
   * Your own supervisor, with the protocol of Troupe's, such as an actor around
   * `PIPELINE_SUPERVISOR`. It has the rights of the program.
   */
  readonly supervisor?: ActorSpec<SupervisorInit, SupervisorMessage> | undefined;
  /** Your own pipeline worker, such as an actor around `PIPELINE_WORKER`. */
  readonly worker?: ActorSpec<WorkerInit, WorkerMessage> | undefined;
  /** Limit of the JavaScript heap of each worker process, in MiB. Default: V8's. */
  readonly heapLimitMb?: number | undefined;
  /**
   * Time in milliseconds after which a step, an evaluation or a save counts as stalled if no worker
   * computes and no message is in transit. A kernel can take any time. Default 60,000.
   */
  readonly stallMs?: number;
  /** Faults to inject, one for each attempt, for tests of recovery. */
  readonly faults?: readonly WorkerFault[];
  /** Adds the worker and the time of each action to step events. Default false. */
  readonly trace?: boolean;
  /** Records every message and step of the actors. Default: no journal. */
  readonly journal?: RunJournal | undefined;
  /**
   * Steps of which the file `black-box` in the folder of the run has what actors were sent, at most
   * 64 MiB, for runs of `troupe train` on threads, processes or in one isolate. Default: 100 if a
   * forward of a stage takes 10^8 FLOPs or more, otherwise 0: none.
   */
  readonly blackBox?: number | undefined;
  /**
   * Actor system of the run, such as a simulated one, for one run at a time. Default: a new one.
   */
  readonly system?: System | undefined;
  /**
   * Called with the measurements of each step and evaluation before its event, for files, charts and
   * trackers. It may be asynchronous. An error that it throws ends the run.
   */
  readonly metrics?: ((metrics: Metrics) => unknown) | undefined;
  /** Called with each step, before its event reaches the loop. It may be asynchronous. */
  readonly onStep?: ((event: TrainEvent & { readonly type: "step" }) => unknown) | undefined;
  /** Called with each evaluation, as `onStep`. */
  readonly onEvaluation?:
    | ((event: TrainEvent & { readonly type: "evaluation" }) => unknown)
    | undefined;
  /** Called with each checkpoint, as `onStep`. */
  readonly onCheckpoint?:
    | ((event: TrainEvent & { readonly type: "checkpoint" }) => unknown)
    | undefined;
  /**
   * Prints the progress: on a terminal a bar with steps, loss, metrics, samples per second and the
   * time left (standard error), otherwise a line for each twelfth of the steps (standard output).
   * Default false.
   */
  readonly progress?: boolean | undefined;
  /** Called with notices for the user: the device and the reason for it, downloads, and waits. */
  readonly announce?: (line: string) => void;
}

/** Options of a run whose folder is known and whose checkpoint is found. */
export interface RunOptions extends TrainOptions {
  readonly model: Model;
  readonly data: Data;
  readonly steps: number;
  readonly resume?: Exclude<TrainOptions["resume"], string>;
  readonly checkpoint?:
    | (NonNullable<TrainOptions["checkpoint"]> & { readonly directory: string })
    | undefined;
}

/** Options of a run on MPI. */
export interface MpiRunOptions {
  /** Path of MPI's library. Default: that of the launcher, by its name on Linux. */
  readonly library?: string | undefined;
  /** Rank of each worker. Default: one rank for each worker, in order. */
  readonly map?: readonly number[] | undefined;
  /**
   * Interface on which ranks announce messages: a name, an address or a network such as 10.1.0.0/16.
   * Default: 127.0.0.1 on one host; on several hosts the network that they share.
   */
  readonly interface?: string | undefined;
  /**
   * Makes rank 0 read and write all files of weights, as with a journal. Default: each rank reads and
   * writes those of its stages, in a folder that all hosts share.
   */
  readonly gather?: boolean | undefined;
}

/** All-reduce algorithm of gradients. */
export type ReduceChoice = "deterministic" | "fast" | "mpi";

/** Options of a journal. */
export interface RunJournal {
  /** Path of the file. A run that restarts its workers continues in `FILE.2`, and so on. */
  readonly path: string;
  /** Keeps messages too, so that one worker can be replayed alone. Default false. */
  readonly payloads?: boolean | undefined;
  /** Configuration that repeats the run, as JSON. */
  readonly configuration?: unknown;
  /** Absolute URLs of the program's modules; they, the actors' modules and all imports are hashed. */
  readonly program?: readonly string[] | undefined;
  /**
   * Reaction to a file that cannot grow, as on a full disk: the run continues without a journal and
   * announces that once (default), or it ends with a checkpoint and an error.
   */
  readonly whenFull?: "go-on" | "stop" | undefined;
}
