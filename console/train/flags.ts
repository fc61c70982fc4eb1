/**
 * The flags of `troupe train`.
 *
 * @module
 */

import { DEFAULT_SIZES, type ModelOptions } from "../../actors/options/model_definition.ts";
import type { Option } from "../../actors/options/option.ts";
import { readStepRange } from "../../actors/options/limits.ts";
import { TRAIN } from "../../actors/options/train_table.ts";
import { builtInNames } from "../../actors/registry/registry.ts";
import { GPT2_MAX } from "../../kernels/internal.ts";
import { COST_FLAGS, SCHEDULE_FLAGS, SCHEDULE_OPTIONS } from "../commands/schedule_flags.ts";
import { TOKENIZER_FLAG } from "../commands/trained.ts";
import {
  type AllOf,
  type CommandSyntax,
  COMMON_FLAGS,
  DASHBOARD_FLAGS,
  type Flags,
  flagsOf,
  flagsOfOptions,
  type FlagValues,
  type GivenFlags,
} from "../flag.ts";
import { ensure } from "../terminal.ts";

/** Placeholder of a component in the help. */
const PART = "NAME|MODULE";

/** A model that a part builds. */
export const BUILT_MODEL_FLAG = {
  kind: "part",
  choices: builtInNames("model"),
  value: PART,
  default: "gpt",
  help: `model to train: ${builtInNames("model").join(", ")}, or one of your own`,
} as const;

/** A size of a model that has a default. */
const size = <const A extends readonly string[]>(
  name: keyof typeof DEFAULT_SIZES,
  aliases: A,
  help: string,
) => ({
  kind: "integer" as const,
  ...{ aliases, maximum: GPT2_MAX[name], default: DEFAULT_SIZES[name], help },
});

/** The model and its sizes: these cannot change in a resumed run. */
export const MODEL_FLAGS = {
  model: {
    ...BUILT_MODEL_FLAG,
    value: `${PART}|FILE.onnx`,
    help: `model to train: ${builtInNames("model").join(", ")}, one of your own, or an ONNX file`,
  },
  layers: size(
    "layers",
    ["n_layer", "num_hidden_layers"],
    "transformer blocks (t5: of encoder and decoder each), hidden layers of the mlp, or resolutions of resnet and unet",
  ),
  hidden: size(
    "hidden",
    ["n_embd", "hidden_size"],
    "width of the layers; of resnet and unet, channels of the coarsest resolution",
  ),
  heads: size("heads", ["n_head", "num_attention_heads"], "attention heads"),
  "kv-heads": {
    kind: "integer",
    aliases: ["num_key_value_heads"],
    maximum: GPT2_MAX.heads,
    otherwise: "as many as --heads",
    help: "llama: attention heads of keys and values, each for several of the queries'",
  },
  intermediate: {
    kind: "integer",
    aliases: ["intermediate_size"],
    otherwise: "8/3 of --hidden, up to a multiple of 32",
    help: "llama: width within a feed-forward network",
  },
  "rope-theta": {
    kind: "number",
    otherwise: "10000",
    help: "llama: base of the angles of rotary positions",
  },
  "norm-epsilon": {
    kind: "number",
    aliases: ["rms_norm_eps"],
    otherwise: "0.000001",
    help: "llama: number that a norm adds to the mean square",
  },
  experts: {
    kind: "integer",
    maximum: GPT2_MAX.heads,
    otherwise: "the default of the model",
    help: "models of your own: experts of a mixture",
  },
  seq: size("seq", ["block_size", "max_position_embeddings"], "tokens of a sample"),
  vocab: {
    kind: "integer",
    aliases: ["vocab_size"],
    maximum: GPT2_MAX.vocab,
    otherwise: "that of the tokenizer",
    help: "number of token ids",
  },
  tokenizer: {
    ...TOKENIZER_FLAG,
    otherwise: "bytes, or that of the weights' folder; of --tokens with --vocab none",
  },
  tie: {
    kind: "switch",
    aliases: ["tie_word_embeddings"],
    help: "gpt, llama, t5: the head's weight is that of the token embedding",
  },
  "head-slices": {
    kind: "integer",
    maximum: GPT2_MAX.headSlices,
    otherwise: "1",
    help: "gpt: layers that share the head, each with a slice of the vocabulary",
  },
} as const;

/** The sizes among the flags, by what a part calls them. */
export const SIZES = {
  layers: "layers",
  hidden: "hidden",
  heads: "heads",
  "kv-heads": "keyValueHeads",
  intermediate: "intermediate",
  "rope-theta": "ropeTheta",
  "norm-epsilon": "normEpsilon",
  experts: "experts",
  seq: "seq",
  vocab: "vocab",
  tie: "tie",
  "head-slices": "headSlices",
} as const;

/** Returns the sizes of a model from flags, by the names that its component uses. */
export function sizesOfFlags(
  { tie = false, ...flags }: Omit<FlagValues<typeof MODEL_FLAGS>, "tokenizer">,
): Omit<ModelOptions, "data" | "microBatch"> {
  const given: Readonly<Record<string, unknown>> = { ...flags, tie };
  return Object.fromEntries(
    Object.entries(SIZES).map(([flag, option]) => [option, given[flag]]),
  ) as unknown as Omit<ModelOptions, "data" | "microBatch">;
}

/** Options that note which of them are read. */
export const noteReads = <T extends object>(options: T, read: Set<unknown>): T =>
  new Proxy(options, { get: (all, name) => (read.add(name), Reflect.get(all, name)) });

/**
 * Refuses typed flags whose options are not read: by default the sizes of a model, which neither the
 * model nor its data reads.
 *
 * @param cannot the refused operation, for the message.
 * @param given the flags that were typed.
 */
export function refuseUnread(
  cannot: string,
  given: Readonly<Record<string, unknown>>,
  read: ReadonlySet<unknown>,
  [reader, options]: readonly [string, Readonly<Record<string, string>>] = ["model", SIZES],
): void {
  const [flag] = Object.entries(options)
    .find(([flag, option]) => given[flag] !== undefined && !read.has(option)) ?? [];
  const must = `--${flag} must be left out, as the ${reader} does not read it`;
  ensure(flag === undefined, cannot, must, given[flag!]);
}

/** Flags that have no effect unless another flag is given, or has a value. */
const NEEDED: readonly (readonly [flags: readonly string[], by: string, value?: string])[] = [
  [Object.keys(flagsOfOptions(TRAIN.nats.fields)), "runtime", "nats"],
  [Object.keys(flagsOfOptions(TRAIN.mpi.fields)), "runtime", "mpi"],
  [["journal-messages", "journal-full"], "journal"],
  [["trace-steps"], "trace"],
  [["dashboard-port", "dashboard-stay"], "dashboard"],
  [["token-lengths"], "tokens"],
  [["profile"], "schedule", "auto"],
];

/**
 * Refuses flags that have no effect, unless they come from a file and the needed flag was typed.
 *
 * @param said the flags of the file and the typed ones.
 * @param isRecord whether the file is the record of a run: its flags may stay unused.
 * @throws {RangeError} naming both flags.
 */
export function refuseUnused(
  said: GivenTrainFlags,
  typed: Readonly<Record<string, unknown>>,
  isRecord: boolean,
): void {
  const all: Readonly<Record<string, unknown>> = { runtime: TRAIN.runtime.default, ...said };
  const isOn = (name: string) => all[name] !== undefined && all[name] !== false;
  for (const [flags, by, value] of NEEDED) {
    const mayRest = isRecord || by in typed;
    const unused = flags.find((name) => isOn(name) && (name in typed || !mayRest));
    const isMet = value === undefined ? isOn(by) : all[by] === value;
    const must = `--${by} must be ${value ?? "given"}`;
    ensure(isMet || unused === undefined, `use --${unused}`, must, all[by], RangeError);
  }
}

/** The settings of optimizers among the flags, by what an optimizer calls them. */
export const OPTIMIZER_SETTINGS = {
  beta1: "beta1",
  beta2: "beta2",
  momentum: "momentum",
  "weight-decay": "weightDecay",
} as const;

/** Your own data. A resumed run needs it again, because no file may name another file. */
export const DATA_FILE_FLAGS = {
  text: { kind: "path", help: "a text of your own in UTF-8, instead of --data" },
  tokens: {
    kind: "path",
    help: "token ids as little-endian uint16, or uint32 in a file.u32, read in order",
  },
  "token-lengths": {
    kind: "path",
    help: "tokens of each document of --tokens as little-endian uint32; t5: source, target, …",
  },
} as const;

/** Data that comes with Troupe and has a name. */
const DATA_NAMES = builtInNames("data").filter((name) => !Object.hasOwn(DATA_FILE_FLAGS, name));

/** Inserts flags of the command after flags of options, by the names of the latter. */
function insertAfter<T extends Flags, Own extends Readonly<Record<string, Flags>>>(
  options: T,
  own: Own,
): T & AllOf<Own[keyof Own]> {
  const flags = Object.entries(options).map(([name, flag]) => ({ [name]: flag, ...own[name] }));
  return Object.assign({}, ...flags);
}

type Inherited = { readonly isInherited: true };

/** The options that a resumed run takes from its checkpoint, and all others. */
type InheritedOptions = {
  readonly [K in keyof typeof TRAIN as (typeof TRAIN)[K] extends Inherited ? K : never]:
    (typeof TRAIN)[K];
};
type FreeOptions = Omit<typeof TRAIN, keyof InheritedOptions | keyof typeof SCHEDULE_OPTIONS>;

const optionsThat = (isIt: (name: string, option: Option<unknown>) => boolean) =>
  Object.fromEntries(Object.entries<Option<unknown>>(TRAIN).filter((one) => isIt(...one)));

const INHERITED = optionsThat((_, { isInherited }) => isInherited === true) as InheritedOptions;

const FREE = optionsThat((name, { isInherited }) =>
  !isInherited && !Object.hasOwn(SCHEDULE_OPTIONS, name)
) as FreeOptions;

/** Data, optimizer, and all other flags that the numbers of a step depend on. */
export const LEARNING_FLAGS = {
  data: {
    kind: "part",
    choices: DATA_NAMES,
    value: PART,
    otherwise:
      "what the model says: sotu; mnist for mlp and resnet, noisy-mnist for unet, sort for t5",
    help: `${DATA_NAMES.join(", ")}, or one of your own`,
  },
  "micro-batch-size": {
    kind: "integer",
    formerly: "micro-batch",
    aliases: ["batch_size", "per_device_train_batch_size"],
    value: "B",
    maximum: GPT2_MAX["micro-batch"],
    default: 8,
    help: "samples of a micro-batch",
  },
  ...insertAfter(
    flagsOfOptions(INHERITED),
    {
      lengths: {
        "group-by-length": {
          kind: "switch",
          help: "with --lengths: documents of similar lengths are in one micro-batch",
        },
      },
      warmup: {
        optimizer: {
          kind: "part",
          choices: builtInNames("optimizer"),
          value: PART,
          default: "adamw",
          help: `${builtInNames("optimizer").join(", ")}, or settings of your own for one of them`,
        },
        dropout: {
          kind: "number",
          aliases: ["resid_pdrop", "embd_pdrop", "attn_pdrop"],
          below: 1,
          otherwise: "0",
          help: "gpt, llama, mlp, t5: share of the elements that are left out in training",
        },
      },
    } as const,
  ),
} as const;

/** Sizes by name, as `batch=8,seq=32` says them. */
const DIMENSIONS = /^[^=,]+=[1-9]\d{0,8}(,[^=,]+=[1-9]\d{0,8})*$/;

/** Flags of ONNX models, which cannot change in a resumed run. */
export const ONNX_FLAGS = {
  loss: {
    kind: "choice",
    choices: ["cross-entropy", "mse"],
    otherwise: "required",
    help: "the loss: of classes, or of numbers with the shape of the output",
  },
  dimensions: {
    kind: "own",
    value: "NAME=N,…",
    read: (text: string) => DIMENSIONS.test(text) ? text : undefined,
    must: "names and whole numbers from 1 such as batch=8,seq=32",
    otherwise: "its first axes are --micro-batch-size, the second ones of ids --seq",
    help: "sizes of axes that have names in the file",
  },
  output: { kind: "text", otherwise: "its only output", help: "the output for the loss" },
  label: {
    kind: "text",
    otherwise: "label, labels or targets",
    help: "the field of the data that the loss compares with",
  },
  freeze: {
    kind: "text",
    value: "NAME,…",
    otherwise: "nothing",
    help: "initializers that are not trained; NAME* matches all with this prefix",
  },
} as const;

/** The sizes that `--dimensions` says, by name. */
export const dimensionsOf = (text: string | undefined): Readonly<Record<string, number>> =>
  Object.fromEntries(
    (text ?? "").split(",").filter(Boolean).map((one) => {
      const at = one.lastIndexOf("=");
      return [one.slice(0, at), Number(one.slice(at + 1))];
    }),
  );

/** Flags that can change in a resumed run. */
const RUNNING_FLAGS = {
  ...insertAfter(
    flagsOfOptions(FREE),
    {
      isolation: {
        supervisor: {
          kind: "part",
          choices: builtInNames("supervisor"),
          value: PART,
          default: "pipeline",
          help: "supervisor of the workers: the built-in one, or your own",
        },
      },
      "journal-full": {
        trace: {
          kind: "path",
          help: "write the times of actions and the causes of waits, for Perfetto or troupe trace",
        },
        "trace-steps": {
          kind: "own",
          value: "A-B",
          read: readStepRange,
          must: "a step or a range of steps such as 10, 100-200 or 100-",
          otherwise: "all; the file has at most 256 MiB",
          help: "steps that a trace has",
        },
      },
      offload: {
        memory: { kind: "switch", help: "show the memory of each worker, planned and used" },
      },
    } as const,
  ),
  ...DASHBOARD_FLAGS,
  log: {
    kind: "choice",
    aliases: ["report_to"],
    choices: ["none", "tensorboard"],
    default: "none",
    help: "also write metrics for another program to the folder of the run",
  },
  json: { kind: "switch", help: "print one JSON object per line instead of text" },
  config: {
    kind: "path",
    help: "flags in JSON, JSONC or TOML, or a checkpoint's config.json; typed flags win",
  },
  ...COMMON_FLAGS,
} as const;

/**
 * Flags that a run takes from a checkpoint or a journal. None is a path, so no file opens or writes
 * another file.
 */
export const INHERITED_FLAGS = { ...MODEL_FLAGS, ...ONNX_FLAGS, ...LEARNING_FLAGS } as const;

const GROUPS = {
  "The model (fixed once a run has begun):": MODEL_FLAGS,
  "A model of an ONNX file (fixed once a run has begun; the file is named again):": ONNX_FLAGS,
  "Data and optimizer (a resumed run inherits these):": LEARNING_FLAGS,
  "Data of your own (to resume a run, name the same file again):": DATA_FILE_FLAGS,
  "Its schedule:": SCHEDULE_FLAGS,
  "What actions cost, for the schedule search:": COST_FLAGS,
  "How it runs:": RUNNING_FLAGS,
} as const;

/** Every flag of `troupe train`. */
export const TRAIN_FLAGS = flagsOf({ groups: GROUPS });

/** The values of the flags of `troupe train`. */
export type TrainFlags = FlagValues<typeof TRAIN_FLAGS>;

/** The values of those flags of `troupe train` that were given. */
export type GivenTrainFlags = GivenFlags<typeof TRAIN_FLAGS>;

/** The declaration of `troupe train`. */
export const TRAIN_SYNTAX: CommandSyntax = {
  name: "train",
  summary: "trains a model with a pipeline of stage actors",
  usage: ["[flags]"],
  groups: GROUPS,
  notes: [
    "In brackets: the default, the bounds, and the names that nanoGPT and Hugging Face have for it.",
    "Names may be written with _ for -, and --no-FLAG takes a switch back.",
    "NAME is of troupe.json, or comes with Troupe; MODULE begins with jsr:, npm:, https:, file:, ./ or ../",
    "and runs with all permissions of this program. To resume a run, name it again.",
    "",
    "Exit codes: 0 done; 1 a run that failed; 2 bad input; 75 a worker thread hangs; 130 a signal.",
  ],
};
