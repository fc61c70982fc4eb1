/**
 * Tables of the options of `train()` that are records: schedule, learning rate, optimizer,
 * checkpoints, evaluation, journal and MPI.
 *
 * @module
 */

import {
  type AdamWOptions,
  type DeviceSpec,
  type Layer,
  LEARNING_RATE_SCHEDULES,
  type LearningRate,
  type Model,
  type PartialOptimizer,
  type SgdOptions,
} from "../../kernels/mod.ts";
import { type AdafactorOptions, DEVICE_SPECS, type LoraOptions } from "../../kernels/internal.ts";
import { scheduleNames, type ScheduleOptions } from "../../schedules/mod.ts";
import { SCALE_MAX } from "../gradients/commit.ts";
import { type Data, isIterable, type ModelComponent } from "./model_definition.ts";
import {
  COUNT_MAX,
  readBacklog,
  readGroups,
  readLimit,
  readLora,
  readNumbers,
  WORKERS_MAX,
} from "./limits.ts";
import {
  anything,
  byType,
  byValue,
  callback,
  fromZero,
  integer,
  listOf,
  meaning,
  number,
  objectOf,
  ofKind,
  oneOf,
  type Options,
  type OptionTable,
  record,
  recordOf,
  type Schema,
  text,
  trueOrFalse,
  type Words,
} from "./option.ts";
import type { MpiRunOptions, RunJournal, TrainOptions } from "./train_options.ts";

export type CheckpointOptions = NonNullable<TrainOptions["checkpoint"]>;

export type EvaluationOptions = NonNullable<TrainOptions["evaluation"]>;

export const count = integer(1, COUNT_MAX);
export const aboveZero = number("a positive number", (value) => value > 0 && value < Infinity);
export const lossScale = number(
  `a positive number, at most ${SCALE_MAX}`,
  (value) => value > 0 && value <= SCALE_MAX,
);
const belowZero = number("a negative number", (value) => value < 0 && value > -Infinity);
const decay = number(
  "a number from 0 and below 1",
  (value) => value >= 0 && value < 1,
  { below: 1 },
);

/** Timers of JavaScript serve no longer times. */
const DELAY_MAX_MS = 2 ** 31 - 1;

/** Milliseconds that a timer can wait. */
export const delayMs = number(
  `a number above 0 and at most ${DELAY_MAX_MS}`,
  (value) => value > 0 && value <= DELAY_MAX_MS,
);

/** The flag of such an option: seconds. */
export const SECONDS = {
  kind: "integer",
  value: "SECONDS",
  factor: 1000,
  maximum: 2_000_000, // a timer counts to 2^31 ms
} as const;

export const mapByName = objectOf<never>("a Map by name", (value) => value instanceof Map);
export const anyObject = objectOf<never>("an object", () => true);
export const open = { isOpen: true } as const;

export const has = (value: unknown, ...names: (string | symbol)[]) =>
  names.every((name) => typeof (value as Record<string | symbol, unknown>)[name] === "function");

export const MODEL = record<Model>(
  {
    name: text,
    layers: listOf(record<Layer>({ name: text, build: callback }, {}, open), 1),
    predictions: byType("number", aboveZero, callback),
  },
  {
    ...{ samples: count, withSamples: callback, withSlices: callback },
    ...{ length: count, withLength: callback },
  },
  open,
);

export const MODEL_DEFINITION = record<ModelComponent>(
  { name: text, build: callback },
  { loss: callback, metrics: anyObject, version: text },
  open,
);

export const deviceNames = oneOf(...DEVICE_SPECS) as Schema<DeviceSpec>;

export const scheduleName = byValue((value) => value === "" ? text : oneOf(...scheduleNames()));

/** Names in other libraries of the settings of an optimizer. */
const OPTIMIZER_WORDS: Words = {
  ...meaning("learningRate of train() was meant", "lr learningRate rate"),
  ...meaning("beta1 and beta2 were meant", "betas"),
  ...meaning("epsilon was meant", "eps"),
};

/** Settings of every optimizer. */
const SHARED = {
  groups: listOf(
    record<NonNullable<AdamWOptions["groups"]>[number]>(
      { match: text },
      { rate: fromZero, weightDecay: fromZero, frozen: trueOrFalse },
      { words: meaning("rate was meant, a factor of the learning rate", "lr learningRate") },
    ),
    1,
  ),
  ema: decay,
};

/** The schema of an optimizer with these settings beside the shared ones. */
const optimizerOf = <T>(
  kind: string,
  own: Readonly<Partial<Record<keyof T, Schema<number>>>>,
): Schema<PartialOptimizer> => {
  const fields = { kind: oneOf(kind), ...own, weightDecay: fromZero, ...SHARED };
  return record({}, fields as never, { words: OPTIMIZER_WORDS });
};

const OPTIMIZERS: Readonly<Record<string, Schema<PartialOptimizer>>> = {
  adamw: optimizerOf<AdamWOptions>("adamw", { beta1: decay, beta2: decay, epsilon: aboveZero }),
  sgd: optimizerOf<SgdOptions>("sgd", { momentum: fromZero }),
  lion: optimizerOf<AdamWOptions>("lion", { beta1: decay, beta2: decay }),
  adafactor: optimizerOf<AdafactorOptions>("adafactor", {
    epsilon: aboveZero,
    clipThreshold: aboveZero,
    beta2Decay: belowZero,
  }),
};

const kinds = oneOf(...Object.keys(OPTIMIZERS));
const optimizerKind = record<{ kind: string }>({ kind: kinds }, {}, open);

export const optimizer = byValue((value) => {
  const { kind = "adamw" } = (value ?? {}) as { readonly kind?: string };
  return Object.hasOwn(OPTIMIZERS, kind) ? OPTIMIZERS[kind]! : optimizerKind as Schema<never>;
});

export const ofRate = (rate: string) =>
  `it is a learning-rate schedule: learningRate: { rate, schedule: "${rate}", warmup }`;

export const RATE_FIELDS = {
  rate: {
    schema: fromZero,
    synonyms: "lr learningRate maxLr peakLr baseLr",
    flag: { name: "lr", aliases: ["learning_rate"], default: 0.002, help: "learning rate" },
  },
  schedule: {
    schema: oneOf(...LEARNING_RATE_SCHEDULES),
    default: "constant",
    synonyms: "kind type name decay lrSchedulerType",
    flag: {
      name: "lr-schedule",
      aliases: ["lr_scheduler_type"],
      help: "schedule of the learning rate after the warm-up",
    },
  },
  minRate: {
    schema: fromZero,
    default: 0,
    synonyms: "minLr etaMin",
    flag: { name: "min-lr", help: "final learning rate of linear and cosine" },
  },
  warmup: {
    schema: integer(0, COUNT_MAX),
    synonyms: meaning(
      "warmup was meant, in steps",
      "warmupSteps warmupIters numWarmupSteps warmupRatio",
    ),
    flag: {
      otherwise: "10 if a gpt or t5 starts with --clip above 0 and the default --lr, otherwise 0",
      help: "steps of linear warm-up",
    },
  },
  steps: { schema: count },
} as const satisfies OptionTable<LearningRate>;

/** The settings of optimizers that have flags. */
export const OPTIMIZER_FIELDS = {
  weightDecay: {
    schema: fromZero,
    flag: { default: 0.01, help: "weight decay, of tensors with two dimensions or more" },
  },
  momentum: { schema: decay, flag: { default: 0.9, help: "SGD's momentum" } },
  beta1: {
    schema: decay,
    flag: { aliases: ["adam_beta1"], default: 0.9, help: "first beta of AdamW and Lion" },
  },
  beta2: {
    schema: decay,
    flag: {
      aliases: ["adam_beta2"],
      default: 0.999,
      help: "second beta of AdamW and Lion, for which 0.99 is usual",
    },
  },
  ema: {
    schema: decay,
    flag: {
      otherwise: "none",
      help: "decay of an average of the weights, such as 0.999; --eval-ema evaluates it",
    },
  },
  groups: {
    schema: text,
    flag: {
      name: "param-groups",
      value: "NAME:rate=F,…;…",
      read: (given: string) => readGroups(given) && given,
      must: "names with * and settings such as *.bias:rate=2,decay=0;*.wte.*:frozen",
      otherwise: "none",
      help: "factors of the learning rate, weight decay, and frozen parameters by name",
    },
  },
} as const satisfies Options;

export const MPI_FIELDS = {
  library: {
    schema: text,
    flag: { name: "mpi-library", isPath: true, help: "MPI's library, if not the launcher's" },
  },
  map: {
    schema: listOf(integer(0)),
    flag: {
      value: "R0,R1,…",
      read: readNumbers,
      must: "a rank for each worker, from 0, such as 0,0,1,1",
      help: "the MPI rank of each worker",
    },
  },
  interface: {
    schema: text,
    flag: {
      name: "mpi-interface",
      value: "INTERFACE",
      help: "network on which MPI ranks announce messages: an interface, address or network",
    },
  },
  gather: {
    schema: trueOrFalse,
    flag: { help: "MPI's rank 0 reads and writes all weights: for hosts that share no folder" },
  },
} as const satisfies OptionTable<MpiRunOptions>;

export const NATS_FIELDS = {
  url: {
    schema: text,
    isRequired: true,
    flag: { name: "nats", value: "URL", help: "server of NATS where the hosts of a run meet" },
  },
  credentials: {
    schema: text,
    isRequired: true,
    flag: {
      name: "nats-creds",
      isPath: true,
      help: "credentials of the run's leader; see troupe nats creds",
    },
  },
  run: {
    schema: text,
    isRequired: true,
    flag: { name: "run-name", value: "NAME", help: "name under which hosts join the run" },
  },
  joinMs: {
    schema: delayMs,
    flag: {
      ...SECONDS,
      name: "join-timeout",
      otherwise: "30",
      help: "time within which a host for each worker must join",
    },
  },
  timeoutMs: {
    schema: delayMs,
    flag: {
      ...SECONDS,
      name: "host-timeout",
      otherwise: "10",
      help: "time after which a silent host is lost",
    },
  },
  spares: {
    schema: integer(0, WORKERS_MAX),
    flag: {
      value: "K",
      otherwise: "0",
      help: "further hosts for which the start waits; each takes the place of a lost one",
    },
  },
} as const satisfies OptionTable<NonNullable<TrainOptions["nats"]>>;

export const JOURNAL_FIELDS = {
  path: {
    schema: text,
    isRequired: true,
    flag: { name: "journal", isPath: true, help: "record every message and step of the actors" },
  },
  payloads: {
    schema: trueOrFalse,
    flag: { name: "journal-messages", help: "keep the messages too, to replay a worker alone" },
  },
  configuration: { schema: anything },
  program: { schema: listOf(text) },
  whenFull: {
    schema: oneOf("go-on", "stop"),
    default: "go-on",
    flag: {
      name: "journal-full",
      help: "on a full disk: continue without the journal, or save a checkpoint and stop",
    },
  },
} as const satisfies OptionTable<RunJournal>;

export const CHECKPOINT_FIELDS = {
  directory: {
    schema: text,
    synonyms: meaning("out of train() was meant, the folder of the run", "out outDir outputDir"),
  },
  overwrite: {
    schema: trueOrFalse,
    flag: {
      help: "remove the files of another run from the folder; with --resume, later checkpoints",
    },
  },
  every: {
    schema: count,
    flag: {
      name: "checkpoint-every",
      aliases: ["save_steps"],
      value: "K",
      otherwise: "one checkpoint, at the end",
      help: "steps from one checkpoint to the next",
    },
  },
  keep: {
    schema: count,
    flag: {
      aliases: ["save_total_limit"],
      value: "M",
      otherwise: "all",
      help: "newest checkpoints that stay",
    },
  },
  keepBest: {
    schema: trueOrFalse,
    flag: {
      help: "write a checkpoint when held-out loss is at its best, and keep it: best.json names it",
    },
  },
  config: { schema: anything }, // encoded before the run starts
} as const satisfies OptionTable<CheckpointOptions>;

export const EVALUATION_FIELDS = {
  every: {
    schema: count,
    isRequired: true,
    flag: {
      name: "eval-every",
      aliases: ["eval_steps"],
      value: "K",
      otherwise: "50; none with --json or --tokens",
      help: "steps from one evaluation of held-out data to the next",
    },
  },
  batches: { schema: listOf(anyObject, 1), isRequired: true },
  ema: {
    schema: trueOrFalse,
    flag: { name: "eval-ema", help: "evaluate the average of the weights (--ema)" },
  },
  atStart: { schema: trueOrFalse },
  patience: {
    schema: count,
    flag: {
      aliases: ["early_stopping_patience"],
      value: "K",
      otherwise: "none",
      help: "end the run after K evaluations that were no better than the best",
    },
  },
} as const satisfies OptionTable<EvaluationOptions>;

/** The parameters of schedules, as `scheduleOptions` and `troupe schedule` have them. */
export const SCHEDULE_FIELDS = {
  workers: { schema: count },
  microBatches: { schema: count },
  chunks: {
    schema: count,
    flag: {
      value: "V",
      otherwise: "2, message-driven 1",
      help:
        "interleaved, interleaved-zb, looped-bfs, slimpipe, search, message-driven: stages on a worker",
    },
  },
  slices: {
    schema: count,
    flag: {
      value: "S",
      otherwise: "1",
      help: "seq1f1b, seq1f1b-zb, terapipe, slimpipe: slices of each micro-batch's sequence",
    },
  },
  waves: { schema: count, flag: { value: "W", otherwise: "1", help: "hanayo, search: waves" } },
  pipelines: {
    schema: count,
    flag: { value: "f", otherwise: "1", help: "chimera: f pipelines down and f up" },
  },
  scale: {
    schema: oneOf("direct", "doubling", "halving"),
    flag: { otherwise: "direct", help: "chimera: method for more than D micro-batches" },
  },
  pipelineLimit: {
    schema: count,
    flag: {
      value: "L|auto",
      read: readLimit,
      must: "a whole number from 1, or auto",
      otherwise: "D, or 2 for one worker; bf, bfw: what --activation-limit has room for",
      help:
        "message-driven, chimera-greedy: micro-batches in flight; auto: see troupe schedule jitter",
    },
  },
  order: {
    schema: oneOf("fifo", "backward-first", "bf", "bfw"),
    flag: {
      choices: ["fifo", "backward-first", "bf", "bfw", "auto"],
      otherwise: "bfw; one worker: fifo",
      help: "message-driven: which ready action is first; auto: see troupe schedule jitter",
    },
  },
  weightBacklog: {
    schema: byType("number", fromZero, oneOf("all")),
    flag: {
      value: "K|all",
      read: readBacklog,
      must: "a whole number from 0, or all",
      otherwise: "bfw 2; elastic: as the list says",
      help: "bfw, elastic: most micro-batches of a stage between I and W",
    },
  },
  limitBy: {
    schema: oneOf("count", "bytes"),
    flag: {
      otherwise: "count",
      help: "bf, bfw: M counts micro-batches, or their bytes in those of the largest",
    },
  },
  sizes: { schema: listOf(aboveZero, 1) },
  activationLimit: {
    schema: aboveZero,
    flag: {
      value: "M",
      help: "message-driven, search, elastic: most activations of a worker, in 1/D of the model",
    },
  },
  weightLimit: {
    schema: aboveZero,
    flag: {
      value: "M",
      otherwise: "1",
      help: "search: most weights of a worker, in 1/D of the model",
    },
  },
  recomputeAhead: {
    schema: trueOrFalse,
    flag: {
      help: "lists: stages keep only their inputs, and recompute before the gradient arrives (R)",
    },
  },
  costs: { schema: anyObject },
  edges: { schema: listOf(anyObject) },
} as const satisfies OptionTable<Omit<ScheduleOptions, "found">>;

/** Training data. */
export const batches = ofKind<Data>(
  "an iterable, or an async one, of micro-batches, or an object with from",
  (value) =>
    typeof value === "object" && value !== null && (isIterable(value) || has(value, "from")),
);

/** A constant rate, a schedule, or a function of the step. */
export const learningRate = byType(
  "function",
  callback,
  byType("number", fromZero, recordOf<Partial<LearningRate>>(RATE_FIELDS)),
);

const lora = record<LoraOptions>(
  { rank: count, target: listOf(text, 1) },
  { alpha: aboveZero },
  {
    words: {
      ...meaning("rank was meant", "r loraR loraRank"),
      ...meaning("alpha was meant", "loraAlpha"),
      ...meaning("target was meant", "targets targetModules"),
    },
  },
);

/** Maximum number of jobs of a run. */
const JOBS_MAX = 8;

/** Settings and folder of an adapter, or of several. */
export const ADAPTER_OPTIONS = {
  jobs: {
    schema: listOf(
      record<NonNullable<TrainOptions["jobs"]>[number]>({ name: text, data: batches }, {
        ...{ lora, adapter: text, learningRate, seed: integer(Number.MIN_SAFE_INTEGER) },
        ...{ steps: count, start: count },
      }),
      1,
      JOBS_MAX,
    ),
    synonyms: meaning("jobs was meant, one for each adapter", "adapters loras tasks"),
  },
  lora: {
    schema: lora,
    isInherited: true,
    synonyms: "peft peftConfig loraConfig",
    flag: {
      value: "rank=R,…",
      read: (text: string) => readLora(text) && text,
      must: "a rank and names of dense layers such as rank=8,alpha=16,target=c_attn,c_proj",
      otherwise: "none: all weights are trained",
      help: "train an adapter of rank R; all other weights are frozen",
    },
  },
  adapter: {
    schema: text,
    flag: {
      isPath: true,
      value: "DIR",
      help: "first values of --lora: a folder in PEFT's format, which also sets --lora",
    },
  },
} as const;
