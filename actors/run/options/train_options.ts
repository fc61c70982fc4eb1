/**
 * What `train()` is asked to do, checked at the door.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  assertMachineHolds,
  type Batch,
  type DeviceName,
  initialValues,
  type LearningRate,
  type Model,
  type ModelProgram,
  type OptimizerOptions,
  type Precision,
  type Recompute,
  resolveDevice,
  type StageState,
} from "../../../kernels/mod.ts";
import {
  createSchedule,
  type ListPolicy,
  type Schedule,
  type ScheduleOptions,
  withPolicy,
} from "../../../schedules/mod.ts";
import { checkOptions } from "./check_options.ts";
import { type Checkpoint, checkWritable, encodeConfig } from "../../checkpoints/checkpoint.ts";
import { compileRun } from "../compile_run.ts";
import type { EngineOptions, SyncStrategy } from "../engines/engine.ts";
import type { LinkOptions } from "../../pipeline/link.ts";
import type { WorkerFault } from "../../pipeline/faults.ts";
import type { LossScale } from "../../commit/loss_scale.ts";
import { assertMemory } from "../memory_limit.ts";
import { totalMemory } from "../memory_plan.ts";
import { describePlan, type Plan } from "../plan.ts";
import { assertServable, assertTrainable } from "./trainable.ts";
import { checkResume, checkTensors } from "./resumed.ts";
import { checkSizes, ISOLATE_BYTES } from "./sizes.ts";
import { type OpenJournal, openRunJournal, type RunJournal } from "../run_journal.ts";
import type { Data } from "../step_data.ts";
import type { System } from "../../runtime/mod.ts";
import { checkProcesses } from "../../runtime/transports/process/check.ts";
import { tidyStationFolders } from "../../runtime/transports/process/station_folder.ts";
import { readWeights } from "../../checkpoints/weights.ts";

/** Where actors run: a Deno worker for each, one isolate for all, or no actors at all. */
export type RuntimeName = "workers" | "local" | "serial";

/** What `train()` is asked to do. */
export interface TrainOptions {
  /** What trains. */
  readonly model: Model;
  /**
   * Micro-batches in global order: the first `microBatches` are those of step 1. After a resume the
   * micro-batches of the steps already done are skipped. Each is copied as it comes, so its buffers
   * may be used again for the next.
   */
  readonly data: Data;
  /** Optimizer steps of the whole run, those before a resume included. */
  readonly steps: number;
  /** Micro-batches of one step, N. Default 4. */
  readonly microBatches?: number;
  /** Workers of the pipeline, D. Default 1. */
  readonly workers?: number;
  /** A schedule's name, or a schedule of one's own for the same workers and micro-batches. */
  readonly schedule?: string | Schedule;
  /** Options of a schedule that is given by name: `pipelineLimit`, `order` and the like. */
  readonly scheduleOptions?: Partial<ScheduleOptions>;
  /**
   * How a schedule's lists are followed: `elastic` runs a later action where the next is not ready,
   * within what the lists need or `scheduleOptions.activationLimit`. Default: the schedule's own.
   */
  readonly policy?: ListPolicy["name"] | undefined;
  /** Data-parallel replicas of the pipeline, W; each runs `microBatches` a step. Default 1. */
  readonly replicas?: number;
  /** When the all-reduce of a stage starts. Default `end`. */
  readonly sync?: SyncStrategy;
  /** How gradients are added: in copy order, or with fewer bytes moved. Default `deterministic`. */
  readonly reduce?: "deterministic" | "fast";
  /** Elements of an optimizer bucket. Default: those of the device. */
  readonly bucketSize?: number | undefined;
  /** Buckets of a chunk of the all-reduce, k. Default 4. */
  readonly coarsening?: number | undefined;
  /** Delays messages between workers as such a link would. */
  readonly link?: LinkOptions | undefined;
  /** What weights, activations and gradients are stored in. Default `fp32`. */
  readonly precision?: Precision;
  /** Factor of the loss, so that FP16 gradients do not vanish. Default `dynamic` with FP16, else 1. */
  readonly lossScale?: number | "dynamic" | undefined;
  /** The most that the norm of all gradients may be; more is scaled down. Default: any. */
  readonly clip?: number | undefined;
  /** Leaves out a last step that has fewer micro-batches than the others. Default false. */
  readonly dropLast?: boolean | undefined;
  /** Keeps only the input of every so many layers for the backward, ac. Default: `recompute` says. */
  readonly recomputeInterval?: number | undefined;
  /** Keeps master weights and moments in host memory, by buckets on the device. Default false. */
  readonly offload?: boolean | undefined;
  /** Refuses a run that needs more bytes than this on a worker. */
  readonly memoryLimitBytes?: number | undefined;
  /** Default `auto`: native where it loads, else wasm. */
  readonly device?: DeviceName | "auto";
  /** Default `workers`. */
  readonly runtime?: RuntimeName;
  /** Default `none`. */
  readonly recompute?: Recompute;
  /** Default AdamW with betas 0.9 and 0.999, ε 1e-8, weight decay 0.01. */
  readonly optimizer?: OptimizerOptions;
  /** A constant rate, or a schedule of it. Default 1e-3. */
  readonly learningRate?: number | Omit<LearningRate, "steps">;
  /** Seed of the first weights. Default 1. */
  readonly seed?: number;
  /** First weights in place of drawn ones: by name, or a safetensors file ({@linkcode readWeights}). */
  readonly weights?: ReadonlyMap<string, Float32Array> | string | undefined;
  /** Where a run goes on: the steps done, weights and moments, as a checkpoint gives them. */
  readonly resume?: {
    readonly step: number;
    readonly state: StageState;
    readonly shapes?: Checkpoint["shapes"];
    readonly config?: Readonly<Record<string, unknown>>;
  } | undefined;
  /** Held-out micro-batches and after how many steps they are evaluated. */
  readonly evaluation?: {
    readonly every: number;
    readonly batches: readonly Batch[];
    /** Whether to evaluate before the first step too. */
    readonly atStart?: boolean;
  } | undefined;
  /**
   * Where checkpoints go, after how many steps, and what their `config.json` says. They are written
   * while the next steps run.
   */
  readonly checkpoint?: {
    /** One run's alone as long as it lasts; where another has it, this one is refused. */
    readonly directory: string;
    /** Default: at the end only. */
    readonly every?: number | undefined;
    /**
     * How many of the newest stay, counted by their names; older ones in the directory are removed
     * when a newer one is whole. Default: all.
     */
    readonly keep?: number | undefined;
    readonly config: Readonly<Record<string, unknown>>;
  } | undefined;
  /** Ends the run after the step under way, or the steps where more than one is, with a checkpoint. */
  readonly signal?: AbortSignal;
  /** Parameters that keep their first values. */
  readonly frozen?: (name: string) => boolean;
  /** How often each worker may fail within ten minutes before the run ends. Default 3. */
  readonly retries?: number;
  /** Whether each worker is a Deno worker (default), or a process that can be killed. */
  readonly isolation?: "worker" | "process";
  /** Limit of the JavaScript heap of each worker that is a process, in MiB. Default: V8's. */
  readonly heapLimitMb?: number | undefined;
  /**
   * How long no worker may be at work, nor a message on a link, while a step, an evaluation or a
   * save waits for them, in milliseconds. A kernel may take any time. Default 60,000.
   */
  readonly stallMs?: number;
  /** What workers are asked to suffer, the first in the first attempt: for tests of recovery. */
  readonly faults?: readonly WorkerFault[];
  /** Whether step events say when each action ran, on which worker. */
  readonly trace?: boolean;
  /** Writes down every message and step of the actors. */
  readonly journal?: RunJournal | undefined;
  /**
   * The actor system that the run lives in, such as a simulated one; one run at a time. Default: one
   * of its own.
   */
  readonly system?: System | undefined;
  /** Told in words: which device is used and why, and what is fetched. */
  readonly announce?: (line: string) => void;
}

/** Everything that a run is made from: options checked, defaults filled in. */
export interface PreparedRun extends EngineOptions {
  /** Optimizer steps of the whole run. */
  readonly steps: number;
  /** Micro-batches of one step, all data-parallel replicas together. */
  readonly microBatches: number;
  /** How the loss is scaled; undefined where a step that overflows ends the run. */
  readonly lossScaling: LossScale | undefined;
  /** Where checkpoints go; their configuration is as they will keep it. */
  readonly checkpoint: TrainOptions["checkpoint"];
  /** Where the journal goes. */
  readonly journal: OpenJournal | undefined;
  /** How each worker is kept apart from the others. */
  readonly isolation: "worker" | "process";
  /** What workers are asked to suffer. */
  readonly faults: readonly WorkerFault[];
  /** How often each worker may fail within ten minutes before the run ends. */
  readonly retries: number;
  /** Told in words what the user should know. */
  readonly announce: (line: string) => void;
  /** Where actors run. */
  readonly runtime: RuntimeName;
  /** The learning rate of each step. */
  readonly rate: LearningRate;
  /** What is about to run. */
  readonly plan: Plan;
}

/** Failures of a worker that a run outlives unless asked otherwise. */
const RETRIES = 3;

/** What nobody works at for so long has stalled, unless asked otherwise. */
const STALL_MS = 60_000;

/** Buckets of a chunk unless asked otherwise: AxoNN found 2 to 4 best (section V-C). */
const COARSENING = 4;

/**
 * Checks the options of a run and fills in its defaults; fetches the device where needed.
 *
 * @throws {RangeError} {@linkcode TypeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function prepareRun(options: TrainOptions): Promise<PreparedRun> {
  checkOptions(options);
  const { steps, microBatches = 4, workers = 1, replicas = 1, runtime = "workers" } = options;
  const { coarsening = COARSENING, clip, link } = options;
  checkSizes({ workers, microBatches, replicas });
  const { schedule: named = "1f1b" } = options;
  const scheduleOptions: ScheduleOptions = { ...options.scheduleOptions, workers, microBatches };
  const made = typeof named === "string" ? createSchedule(named, scheduleOptions) : named;
  const schedule = options.policy
    ? withPolicy(made, options.policy, scheduleOptions.activationLimit)
    : made;
  if (typeof named !== "string" && schedule.microBatches !== microBatches) {
    throw new RangeError(
      `Cannot train: the schedule must be for ${microBatches} micro-batches, received ${schedule.microBatches}`,
    );
  }
  assertTrainable(schedule);
  if (options.journal && runtime === "serial") {
    throw new RangeError(
      "Cannot write a journal: the runtime must have actors, workers or local, received serial",
    );
  }
  const compiled = compileRun(options, schedule), { model, stage, memory } = compiled;
  const { sync = "end", precision = "fp32", lossScale } = options, ties = model.ties.length;
  assertServable(schedule, { replicas, sync, clip, precision, lossScale, ties });
  const isolates = runtime === "workers" ? schedule.workers * ISOLATE_BYTES : 0;
  assertMachineHolds("Cannot train", replicas * (totalMemory(memory) + isolates));
  const device = await resolveDevice(options.device ?? "auto", options.announce);
  // Before the first weights are drawn: they may be too many.
  assertMemory(options, schedule, compiled, device.name);
  const state = await firstState(model, options);
  const { learningRate = 1e-3 } = options;
  const rate: LearningRate = typeof learningRate === "number"
    ? { rate: learningRate, schedule: "constant", warmup: 0, steps }
    : { ...learningRate, steps };
  const checkpoint = options.checkpoint &&
    { ...options.checkpoint, config: encodeConfig(options.checkpoint.config) };
  if (checkpoint) await checkWritable(checkpoint.directory);
  if (runtime === "workers" && options.isolation === "process") checkProcesses();
  tidyStationFolders();
  const { announce = () => {} } = options;
  const journal = options.journal && await openRunJournal(options.journal, announce);
  const { predictions } = options.model;
  return {
    steps,
    microBatches: replicas * schedule.microBatches,
    predictionsOf: typeof predictions === "number" ? () => predictions : predictions,
    runtime,
    schedule,
    scheduleOptions,
    replicas,
    halves: compiled.halves,
    model,
    state,
    rate,
    plan: describePlan(model, schedule, { runtime, device: device.name, replicas, stage, memory }),
    device,
    stage,
    sync,
    reduce: options.reduce ?? "deterministic",
    coarsening,
    clip,
    link,
    lossScaling: options.lossScale ?? (precision === "fp16" ? "dynamic" : undefined),
    isolation: options.isolation ?? "worker",
    checkpoint,
    journal,
    system: options.system,
    faults: options.faults ?? [],
    heapLimitMb: options.heapLimitMb,
    stallMs: options.stallMs ?? STALL_MS,
    retries: options.retries ?? RETRIES,
    announce,
    isTraced: options.trace ?? false,
    seed: options.seed ?? 1,
  };
}

/** Weights and moments before the first step: resumed, given or drawn. */
async function firstState(
  { parameters, ties }: ModelProgram,
  { resume, weights, seed = 1, optimizer = ADAMW_DEFAULTS }: TrainOptions,
): Promise<StageState> {
  if (resume) {
    checkResume({ parameters }, optimizer, resume);
    return resume.state;
  }
  const moments = new Map();
  if (typeof weights === "string") {
    return { weights: await readWeights(weights, parameters, ties), moments };
  }
  if (weights) {
    checkTensors("weights", parameters, weights);
    return { weights, moments };
  }
  const drawn = parameters.map(({ name, spec }) =>
    [name, initialValues(spec, name, seed)] as const
  );
  return { weights: new Map(drawn), moments };
}
