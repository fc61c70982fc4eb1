/**
 * The table of the options of `train()`: checks, defaults, synonyms and flags.
 *
 * @module
 */

import {
  DEVICE_NAMES,
  type DeviceSpec,
  type Model,
  PRECISIONS,
  RECOMPUTE_POLICIES,
  type StateOf,
} from "../../kernels/mod.ts";
import { DEVICE_SPECS, isDeviceSpec } from "../../kernels/internal.ts";
import { type Schedule, scheduleNames, type ScheduleOptions } from "../../schedules/mod.ts";
import type { TensorSource } from "../checkpoints/tensors.ts";
import type { LinkOptions } from "../pipeline/links.ts";
import type { WorkerFault } from "../pipeline/worker_state.ts";
import { checkTransports } from "../runtime/checks.ts";
import type { System } from "../runtime/mod.ts";
import { knownTransports } from "../transports/system.ts";
import {
  COUNT_MAX,
  MICRO_BATCHES_MAX,
  readFromZero,
  readLink,
  readLossScale,
  readNumbers,
  readSize,
  readThreads,
  THREADS_MAX,
  WORKERS_MAX,
} from "./limits.ts";
import {
  anything,
  byType,
  byValue,
  callback,
  check,
  type Filled,
  fillIn,
  fromZero,
  integer,
  listOf,
  meaning,
  number,
  objectOf,
  oneOf,
  type OptionTable,
  record,
  recordOf,
  text,
  trueOrFalse,
  type Words,
} from "./option.ts";
import {
  aboveZero,
  ADAPTER_OPTIONS,
  anyObject,
  batches,
  CHECKPOINT_FIELDS,
  type CheckpointOptions,
  count,
  delayMs,
  deviceNames,
  EVALUATION_FIELDS,
  type EvaluationOptions,
  has,
  JOURNAL_FIELDS,
  learningRate,
  lossScale,
  mapByName,
  MODEL,
  MODEL_DEFINITION,
  MPI_FIELDS,
  NATS_FIELDS,
  ofRate,
  open,
  optimizer,
  OPTIMIZER_FIELDS,
  RATE_FIELDS,
  SCHEDULE_FIELDS,
  scheduleName,
  SECONDS,
} from "./train_fields.ts";
import type { ModelComponent } from "./model_definition.ts";
import {
  type MpiRunOptions,
  type RunJournal,
  type RunOptions,
  type TrainOptions,
} from "./train_options.ts";

/**
 * The options of `train()`. From this table come their checks, defaults and synonyms, the flags of
 * `troupe train` with help and completion, the keys of configuration files and what a checkpoint
 * keeps of them.
 */
export const TRAIN = {
  model: {
    schema: byValue<Model | ModelComponent>((value) =>
      has(value ?? {}, "build") ? MODEL_DEFINITION : MODEL
    ),
    isRequired: true,
  },
  data: {
    schema: batches,
    isRequired: true,
    synonyms: {
      ...meaning(
        "data was meant",
        "dataset trainDataset trainData dataloader trainDataloader loader",
      ),
      ...meaning("order the data with shuffledOrder", "shuffle"),
    },
  },
  steps: {
    schema: count,
    synonyms: meaning(
      "steps was meant, the optimizer steps of the whole run",
      "maxIters maxSteps iterations iters numSteps trainSteps totalSteps",
    ),
    flag: {
      aliases: ["max_iters", "max_steps"],
      default: 600,
      help: "optimizer steps of the whole run",
    },
  },
  epochs: { schema: count, synonyms: "epoch numEpochs maxEpochs numTrainEpochs" },
  microBatches: {
    schema: count,
    default: 4,
    isInherited: true,
    synonyms:
      "gradientAccumulationSteps gradAccumSteps accumulateGradBatches nMicrobatches numMicrobatches chunks",
    flag: {
      aliases: ["gradient_accumulation_steps"],
      value: "N",
      maximum: MICRO_BATCHES_MAX,
      help: "micro-batches of a step and a replica",
    },
  },
  replicas: {
    schema: count,
    default: 1,
    isInherited: true,
    synonyms: "dpSize dataParallelSize dataParallel worldSize ddp",
    flag: { value: "W", maximum: WORKERS_MAX, help: "data-parallel replicas" },
  },
  dropLast: {
    schema: trueOrFalse,
    isInherited: true,
    flag: { help: "leave out a last step with too few micro-batches" },
  },
  lengths: {
    schema: trueOrFalse,
    isInherited: true,
    flag: { help: "samples are documents, each micro-batch padded to the least eighth of --seq" },
  },
  learningRate: {
    schema: learningRate,
    isInherited: true,
    synonyms: {
      ...meaning("learningRate was meant", "lr maxLr peakLr baseLr rate stepSize"),
      ...meaning(
        `learningRate: { rate, schedule: "cosine", warmup, minRate } was meant`,
        "lrScheduler lrSchedulerType lrSchedule scheduler decayLr lrDecayIters lrDecayStyle warmup " +
          "warmupSteps warmupIters warmupRatio numWarmupSteps minLr",
      ),
    },
    fields: RATE_FIELDS,
  },
  optimizer: {
    schema: optimizer,
    isInherited: true,
    synonyms: meaning(
      "optimizer: { ...ADAMW_DEFAULTS, weightDecay } was meant",
      "weightDecay betas beta1 beta2 eps epsilon momentum adamBeta1 adamBeta2 adamEpsilon optim adam adamw",
    ),
    words: {
      ...meaning(
        `{ kind: "adamw", ... } was meant, such as ADAMW_DEFAULTS`,
        "adam adamw adamwTorch",
      ),
      ...meaning(`{ kind: "sgd", momentum, weightDecay } was meant`, "sgd momentum"),
      ...meaning(`{ kind: "lion", beta1, beta2, weightDecay } was meant`, "lion"),
    },
    fields: OPTIMIZER_FIELDS,
  },
  clip: {
    schema: number("a number from 0", (value) => value >= 0),
    isInherited: true,
    synonyms: "gradClip maxGradNorm maxNorm clipGrad clipGradNorm gradientClipVal",
    flag: {
      aliases: ["grad_clip", "max_grad_norm"],
      value: "NORM",
      read: readFromZero,
      must: "a number from 0",
      otherwise: "1 if a gpt or t5 starts on --data or --text with flushes, otherwise 0",
      help: "largest norm of all gradients; 0: no clipping",
    },
  },
  precision: {
    schema: oneOf(...PRECISIONS),
    default: "fp32",
    isInherited: true,
    synonyms: {
      ...meaning(
        `precision: "fp16" was meant`,
        "fp16 half amp mixedPrecision dtype torchDtype computeDtype",
      ),
      ...meaning(`precision: "bf16" was meant`, "bf16 autocast"),
    },
    words: {
      ...meaning("fp16 was meant", "float16 half f16 mixed amp"),
      ...meaning("bf16 was meant", "bfloat16 autocast"),
      ...meaning("fp32 was meant", "float32 float f32 single no"),
    },
    flag: {
      aliases: [{ name: "fp16", means: "fp16" }, { name: "bf16", means: "bf16" }],
      help: "how weights, activations and gradients are stored; bf16: products of dense layers",
    },
  },
  onednn: {
    schema: text,
    flag: {
      isPath: true,
      otherwise: "the installed one (Debian's package libdnnl2)",
      help: "bf16: the library of oneDNN 2",
    },
  },
  lossScale: {
    schema: byType("number", lossScale, oneOf("dynamic")),
    isInherited: true,
    flag: {
      value: "N|dynamic",
      read: readLossScale,
      must: "a number above 0, or dynamic",
      otherwise: "dynamic",
      help: "fp16: factor of the loss",
    },
  },
  ...ADAPTER_OPTIONS,
  reduce: {
    schema: oneOf("deterministic", "fast", "mpi"),
    default: "deterministic",
    isInherited: true,
    flag: { help: "all-reduce in copy order, by ring and halving, or by MPI" },
  },
  seed: {
    schema: integer(Number.MIN_SAFE_INTEGER),
    default: 1,
    isInherited: true,
    synonyms: "manualSeed randomSeed dataSeed",
    flag: { minimum: 0, help: "seed of the weights and of the order of a text" },
  },
  workers: {
    schema: count,
    default: 1,
    synonyms:
      "stages numStages nStages numWorkers ppSize pipelineParallelSize pipelineModelParallelSize numGpus devices nprocPerNode",
    flag: { value: "D", maximum: WORKERS_MAX, default: 2, help: "workers of a pipeline" },
  },
  schedule: {
    schema: byType("string", scheduleName, record<Schedule>({ name: text }, {}, open)),
    default: "message-driven",
    words: {
      ...meaning(ofRate("linear"), "linear"),
      ...meaning(ofRate("cosine"), "cosine cosineAnnealing cosineWithRestarts"),
      ...meaning(ofRate("one-cycle"), "oneCycle oneCycleLR"),
      ...meaning(ofRate("constant"), "constant constantWithWarmup"),
      ...meaning("interleaved was meant", "Interleaved1F1B ScheduleInterleaved1F1B"),
      ...meaning("1f1b was meant", "oneFOneB Schedule1F1B pipeDreamFlush"),
      ...meaning("gpipe was meant", "ScheduleGPipe fillDrain"),
      ...meaning("looped-bfs was meant", "ScheduleLoopedBFS breadthFirst"),
      ...meaning("zb-h1 was meant", "zeroBubble"),
      ...meaning("interleaved-zb was meant", "InterleavedZeroBubble ScheduleInterleavedZeroBubble"),
      ...meaning("zb-v was meant", "ZBVZeroBubble ScheduleZBVZeroBubble"),
      ...meaning("dualpipe-v was meant", "ScheduleDualPipeV"),
    },
    flag: {
      value: "NAME",
      choices: scheduleNames(),
      default: "message-driven",
      help: "order of actions; see troupe schedule list",
    },
  },
  policy: {
    schema: oneOf("list", "elastic"),
    flag: { otherwise: "list", help: "lists: in order, or later actions early" },
  },
  layout: {
    schema: text,
    flag: {
      value: "E,4|3,H",
      otherwise: "auto: nearly equal work; schedule: shortest step",
      help: "layers of each stage: E embedding, H head, a number of blocks or layers",
    },
  },
  scheduleOptions: {
    schema: recordOf<Partial<Omit<ScheduleOptions, "found">>>(SCHEDULE_FIELDS),
    fields: SCHEDULE_FIELDS,
  },
  device: {
    schema: byValue<DeviceSpec>((value) =>
      typeof value === "string" && isDeviceSpec(value) ? anything : deviceNames
    ),
    synonyms: "accelerator backend",
    words: {
      ...meaning("webgpu was meant", "cuda gpu mps rocm vulkan metal"),
      ...meaning("native was meant", "cpu"),
    },
    flag: {
      choices: ["auto", ...DEVICE_NAMES],
      value: "DEVICE",
      read: (text: string): DeviceSpec | undefined => isDeviceSpec(text) ? text : undefined,
      must: `one of ${DEVICE_SPECS.join(", ")}`,
      default: "auto",
      help: "the device that computes",
    },
  },
  adapters: {
    schema: listOf(integer(0), 1),
    flag: {
      value: "N,N",
      read: readNumbers,
      must: "numbers from 0 with commas between them, such as 0,1",
      otherwise: "all GPUs",
      help: "webgpu: those on which the workers compute, in turn",
    },
  },
  threads: {
    schema: byType("string", oneOf("auto"), integer(1, THREADS_MAX)),
    flag: {
      value: "N|auto",
      read: readThreads,
      must: `a whole number from 1 to ${THREADS_MAX}, or auto`,
      otherwise: "1",
      help: "native: threads of each worker within an operation; auto: its share of the cores",
    },
  },
  runtime: {
    schema: oneOf("workers", "local", "serial", "mpi", "nats"),
    default: "workers",
    flag: { help: "where actors run" },
  },
  mpi: { schema: recordOf<MpiRunOptions>(MPI_FIELDS), fields: MPI_FIELDS },
  nats: { schema: recordOf<NonNullable<TrainOptions["nats"]>>(NATS_FIELDS), fields: NATS_FIELDS },
  isolation: {
    schema: text,
    flag: {
      choices: ["worker", "process"],
      otherwise: "worker; process on webgpu",
      help: "isolation of workers: threads, or processes, which can be killed",
    },
  },
  retries: {
    schema: integer(0, COUNT_MAX),
    default: 3,
    flag: { help: "number of times that each worker may fail in ten minutes" },
  },
  failover: {
    schema: oneOf("restart", "resize"),
    flag: {
      otherwise: "resize; restart if the run cannot move",
      help: "after the loss of a worker restart all, or move the run to the others",
    },
  },
  buddy: { schema: trueOrFalse, flag: { help: "workers mirror stages that have one copy only" } },
  minWorkers: {
    schema: integer(1, WORKERS_MAX),
    flag: {
      otherwise: "1",
      help: "fewest workers after a resize; with fewer the run ends with a checkpoint",
    },
  },
  verify: {
    schema: oneOf("none", "sums", "actions"),
    flag: { otherwise: "none", help: "compare copies, or also what is sent" },
  },
  verifyEvery: {
    schema: integer(1, COUNT_MAX),
    flag: { otherwise: "4", help: "with actions, run 1 forward in N again" },
  },
  snapshots: {
    schema: oneOf("memory", "disk"),
    flag: {
      otherwise: "memory up to 256 MiB of weights and moments, otherwise disk",
      help: "where the state is from which the run restarts when a worker fails",
    },
  },
  stallMs: {
    schema: delayMs,
    default: 60_000,
    flag: {
      ...SECONDS,
      name: "stall-timeout",
      default: 60,
      help: "time without activity of any worker after which the run counts as stalled",
    },
  },
  journal: { schema: recordOf<RunJournal>(JOURNAL_FIELDS), fields: JOURNAL_FIELDS },
  blackBox: {
    schema: integer(0, COUNT_MAX),
    flag: {
      otherwise: "100, or 0 if an action takes less than about 1 ms",
      help: "steps kept to replay after a crash",
    },
  },
  recompute: {
    schema: oneOf(...RECOMPUTE_POLICIES),
    default: "none",
    synonyms: meaning(
      `recompute: "full" was meant`,
      "gradientCheckpointing activationCheckpointing checkpointActivations recomputeGranularity",
    ),
    flag: { help: "activations computed again in the backward" },
  },
  recomputeInterval: {
    schema: count,
    flag: { value: "AC", help: "keep only the input of every AC blocks or layers" },
  },
  offload: {
    schema: trueOrFalse,
    synonyms: "cpuOffload offloadOptimizer zeroOffload",
    flag: { help: "master weights and moments stay in host memory" },
  },
  memoryLimitBytes: {
    schema: aboveZero,
    flag: {
      name: "memory-limit",
      value: "SIZE",
      read: readSize,
      must: "a size of at least one byte such as 512MiB, 2GiB or 1000000",
      help: "refuse a run that needs more on a worker",
    },
  },
  sync: {
    schema: oneOf("end", "eager", "eager-opt"),
    default: "end",
    flag: { help: "when the all-reduce of a stage starts" },
  },
  bucketSize: { schema: count, flag: { value: "E", help: "elements of an optimizer bucket" } },
  coarsening: {
    schema: count,
    default: 4, // AxoNN found 2 to 4 best (section V-C)
    flag: { value: "K", otherwise: "4", help: "buckets of a chunk of the all-reduce" },
  },
  link: {
    schema: record<LinkOptions>(
      { latencyUs: fromZero, gigabytesPerSecond: aboveZero },
      { jitterUs: fromZero },
    ),
    flag: {
      name: "emulate-link",
      value: "ALPHA_US,GBPS",
      read: readLink,
      must: "a latency in µs from 0 to 6e7, a comma and GB/s above 0, such as 50,1.25",
      help: "delay messages as on a link with this latency and bandwidth: µs, GB/s",
    },
  },
  weights: {
    schema: byType("string", text, mapByName),
    flag: {
      isPath: true,
      value: "PATH",
      help:
        "initial weights: a folder of Hugging Face, which also sets the sizes; or safetensors, or an index",
    },
  },
  resume: {
    schema: byType(
      "string",
      text,
      record<NonNullable<RunOptions["resume"]>>(
        {
          step: integer(0, COUNT_MAX),
          state: record<StateOf<TensorSource>>(
            { weights: mapByName, moments: mapByName },
            {},
            open,
          ),
        },
        { config: anyObject },
        open,
      ),
    ),
    synonyms: "resumeFrom resumeFromCheckpoint initFrom loadCheckpoint",
    flag: {
      isPath: true,
      aliases: ["resume_from_checkpoint"],
      value: "RUN",
      help: "resume from the newest checkpoint of a run: its folder, or its name below runs/",
    },
  },
  out: {
    schema: text,
    synonyms: meaning(
      "out was meant, the folder of the run",
      "outDir outputDir runDir logDir loggingDir defaultRootDir",
    ),
    flag: {
      isPath: true,
      aliases: ["out_dir", "output_dir"],
      value: "DIR",
      otherwise: "runs/MODEL-1, -2 …; that of --resume; none with --json",
      help: "the run's folder: checkpoints, run.json, metrics.jsonl",
    },
  },
  checkpoint: {
    schema: recordOf<CheckpointOptions>(CHECKPOINT_FIELDS),
    synonyms: meaning(
      "checkpoint: { directory, every, keep, config } was meant",
      "checkpointDir saveDir saveSteps saveInterval saveEvery saveTotalLimit saveStrategy",
    ),
    fields: CHECKPOINT_FIELDS,
  },
  evaluation: {
    schema: recordOf<EvaluationOptions>(EVALUATION_FIELDS),
    synonyms: meaning(
      "evaluation: { every, batches } was meant",
      "evalDataset valData valDataloader validationData evalSteps evalInterval evalEvery evalIters evalStrategy",
    ),
    fields: EVALUATION_FIELDS,
  },
  signal: {
    schema: objectOf<AbortSignal>("an AbortSignal", (value) => value instanceof AbortSignal),
  },
  frozen: { schema: callback },
  returnWeights: { schema: trueOrFalse, default: true },
  transport: { schema: anyObject },
  supervisor: { schema: anyObject },
  worker: { schema: anyObject },
  heapLimitMb: { schema: count },
  faults: {
    schema: listOf(record<WorkerFault>({
      worker: integer(0),
      afterActions: integer(0),
      kind: oneOf("throw", "exit", "close", "loop", "memory"),
    })),
    default: [],
  },
  trace: { schema: trueOrFalse, default: false },
  system: {
    schema: objectOf<System>("an actor system", (value) => has(value, "spawn", "ask", "stop")),
  },
  metrics: {
    schema: callback,
    synonyms: meaning(
      "metrics was meant, or onStep, onEvaluation, onCheckpoint, or the events of train()",
      "callback callbacks onEvent logger logInterval loggingSteps",
    ),
  },
  onStep: { schema: callback },
  onEvaluation: { schema: callback },
  onCheckpoint: { schema: callback },
  progress: { schema: trueOrFalse, synonyms: "verbose progressBar showProgress disableTqdm" },
  announce: { schema: callback, default: () => {} },
} as const satisfies OptionTable<TrainOptions>;

/** Names in other libraries of settings that are not options of `train()`. */
const ELSEWHERE: Words = {
  ...meaning(
    "the samples of a micro-batch are the model's, as in gpt2(sizes, samples)",
    "batchSize microBatchSize microBatch trainBatchSize perDeviceTrainBatchSize trainMicroBatchSizePerGpu",
  ),
  ...meaning(
    "the last layer of the model returns the loss",
    "loss lossFn lossFunction criterion objective",
  ),
  ...meaning(
    "it is a size of the model, as in gpt2(sizes, samples)",
    "layers nLayer numLayers hidden nEmbd hiddenSize heads nHead numAttentionHeads seq blockSize seqLength vocab vocabSize dropout",
  ),
};

const OPTIONS = recordOf<TrainOptions>(TRAIN, ELSEWHERE);

/** Options of a run, with the defaults of those that were not given. */
export type CheckedOptions = Filled<RunOptions, typeof TRAIN>;

/**
 * Checks the options of a run and fills in their defaults.
 *
 * @throws {TypeError} when one is unknown, missing or of another type.
 * @throws {RangeError} when a value is out of its range.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { train } from "@troupe/troupe";
 *
 * const options = { model: { name: "none", layers: [] }, runtime: "worker" };
 * await assert.rejects(train({ ...options, isolaton: "process" } as never).next(), {
 *   message: 'Cannot train: every option must be known, received "isolaton"; did you mean isolation?',
 * });
 * ```
 */
export function readOptions<O extends TrainOptions>(options: O): Filled<O, typeof TRAIN> {
  check(OPTIONS, options, { cannot: "Cannot train", table: TRAIN });
  const { isolation, system, transport, checkpoint, evaluation, out, resume } = options;
  const { directory } = checkpoint ?? {};
  const hasSteps = options.steps !== undefined, hasEpochs = options.epochs !== undefined;
  const ensure = (is: unknown, must: string, received: string) => {
    if (!is) throw new TypeError(`Cannot train: ${must}, received ${received}`);
  };
  ensure(hasSteps || hasEpochs, "steps must be given, or epochs", "undefined");
  ensure(!hasSteps || !hasEpochs, "steps must be left out beside epochs", "both");
  const isOne = directory === undefined || out === undefined || directory === out;
  ensure(isOne, "checkpoint.directory must be left out beside out", "both");
  const isPlaced = (directory ?? out) !== undefined || typeof resume === "string";
  ensure(!checkpoint || isPlaced, "checkpoint.directory must be given", "undefined");
  const { keepBest } = checkpoint ?? {}, { ema } = options.optimizer ?? {};
  const best = "evaluation must be given where checkpoint.keepBest is true";
  ensure(!keepBest || evaluation, best, "none");
  const average = "optimizer.ema must be given where evaluation.ema is true";
  ensure(!evaluation?.ema || ema !== undefined, average, "none");
  ensure(!transport || !system, "transport must be given to the system", "beside one");
  checkTransports("Cannot train:", transport ?? []);
  if (isolation !== undefined) {
    const names = knownTransports(options).map(({ name }) => name);
    check(oneOf(...names), isolation, { cannot: "Cannot train", name: "isolation" });
  }
  return fillIn(TRAIN, options);
}
