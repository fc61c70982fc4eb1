/**
 * The flags of `troupe plan`.
 *
 * @module
 */

import type { Profile } from "../../actors/planner/profile.ts";
import type { DataComponent } from "../../actors/registry/component.ts";
import { PRECISIONS, RECOMPUTE_POLICIES } from "../../kernels/mod.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import { COMMON_FLAGS, flagsOf, type FlagValues } from "../flag.ts";
import { rawArguments, readKeptFlags } from "../parse.ts";
import { inOneLine, printError } from "../terminal.ts";
import {
  BUILT_MODEL_FLAG,
  DATA_FILE_FLAGS,
  LEARNING_FLAGS,
  MODEL_FLAGS,
  SIZES,
} from "../train/flags.ts";
import { refuseOnnxFile } from "../train/onnx.ts";
import { importComponents, runOptions, taskOf } from "../train/parts.ts";
import { readTrainFlags } from "../train/request.ts";
import { someOf } from "./common.ts";
import { COST_FLAGS, SIZE_FLAG } from "./schedule_flags.ts";

/** Maximum number of devices of a plan, and of samples of its step: larger values are mistakes. */
const DEVICES_MAX = 2 ** 17, BATCH_MAX = 2 ** 24;

const { data, optimizer, dropout, clip } = LEARNING_FLAGS;

/** Flags of the model and data; an emitted command repeats them. */
const PLANNED_FLAGS = {
  ...MODEL_FLAGS,
  model: BUILT_MODEL_FLAG,
  data,
  ...DATA_FILE_FLAGS,
  optimizer,
  dropout,
  clip,
} as const;

/** Flags of the machine. */
const PLACE_FLAGS = {
  profile: { kind: "path", help: "costs of the machine, written by troupe profile --out FILE" },
  devices: {
    kind: "integer",
    value: "P",
    maximum: DEVICES_MAX,
    otherwise: "those of the profile",
    help: "workers of all replicas together",
  },
  batch: {
    kind: "integer",
    value: "B",
    maximum: BATCH_MAX,
    help: "samples of a whole step, over all replicas",
  },
  "memory-limit": {
    ...SIZE_FLAG,
    otherwise: "that of the profile's devices",
    help: "memory of a worker",
  },
  device: {
    kind: "text",
    otherwise: "the first of the profile",
    help: "device, as named in the profile",
  },
  transport: {
    kind: "text",
    otherwise: "worker, or the first of the profile",
    help: "transport of messages, as named in the profile",
  },
  jitter: {
    ...COST_FLAGS.jitter,
    otherwise: "times vary as in the profile",
    help: "actions take up to J times longer: 0.1 means up to 10 %; plans are ranked by their mean",
  },
} as const;

/** Reads counts, separated by commas. */
export function readCounts(text: string): readonly number[] | undefined {
  return /^[1-9]\d{0,8}(,[1-9]\d{0,8})*$/.test(text) ? text.split(",").map(Number) : undefined;
}

const COUNTS = {
  kind: "own",
  value: "N,N",
  read: readCounts,
  must: "whole numbers from 1 with commas between them, such as 2,4",
} as const;

/** Flags that limit the search. */
const CHOICE_FLAGS = {
  schedules: someOf(
    scheduleNames(),
    "all that flush except search and chimera-greedy; chimera-wave is hanayo with replicas",
    "schedules to try",
  ),
  workers: { ...COUNTS, otherwise: "all that divide P", help: "depths D to try" },
  "micro-batch-size": {
    ...COUNTS,
    formerly: "micro-batch",
    otherwise: "all that divide the samples of a replica",
    help: "micro-batch sizes to try",
  },
  recompute: someOf(RECOMPUTE_POLICIES, "all", "policies of recomputation to try"),
  precision: someOf(
    PRECISIONS,
    "fp32, as others change the results",
    "precisions of weights, activations and gradients to try",
  ),
} as const;

/** Flags of the output. */
const SHOWING_FLAGS = {
  "time-limit": {
    kind: "integer",
    value: "SECONDS",
    otherwise: "none",
    help: "end the search with the best so far, and print progress",
  },
  count: { kind: "integer", value: "K", maximum: 1000, default: 10, help: "number of plans" },
  format: { kind: "choice", choices: ["table", "json"], default: "table", help: "output format" },
  json: { kind: "switch", help: "same as --format json" },
  lose: {
    kind: "integer",
    value: "K",
    otherwise: "none",
    help: "show what remains of the best plan after 1 to K lost workers",
  },
  emit: {
    kind: "switch",
    help: "print the troupe train command of the best plan, or of the plan with this rank",
  },
  ...COMMON_FLAGS,
} as const;

/** The flags of `troupe plan` in groups, for its help. */
export const PLAN_GROUPS = {
  "The model, as for troupe train; by default that of the profile:": PLANNED_FLAGS,
  "The machine:": PLACE_FLAGS,
  "The search:": CHOICE_FLAGS,
  "Output:": SHOWING_FLAGS,
} as const;

/** All flags of `troupe plan`. */
export const PLAN_FLAGS = flagsOf({ groups: PLAN_GROUPS });

/** The values of the flags. */
export type PlanFlags = FlagValues<typeof PLAN_FLAGS>;

/** The model of a plan. */
export type PlannedModel = Awaited<ReturnType<typeof plannedModel>>;

/** Flags of data; each sets the vocabulary. */
const DATA = ["data", "text", "tokens", "tokenizer"];

/** Flags of a run that only builds the model. */
const SMALL = ["--workers=1", "--micro-batch-size=1", "--micro-batches=1", "--schedule=1f1b"];

/**
 * Builds the model of a plan: that of its profile, with the sizes that flags change.
 *
 * @param typed the arguments of `troupe plan`.
 * @param path of the profile.
 *
 * @throws {TypeError} {@linkcode RangeError} as `troupe train` does.
 */
export async function plannedModel(
  typed: readonly string[],
  { model: kept = {} }: Pick<Profile, "model"> = {},
  path = "the profile",
) {
  const { flags, takenBack } = rawArguments(typed, PLAN_FLAGS, { takesWords: true });
  if (flags.model !== undefined) refuseOnnxFile("plan", String(flags.model));
  const isSame = flags.model === undefined || flags.model === kept.model;
  const free: Record<string, unknown> = {};
  for (const name of ["model", ...Object.keys(SIZES)]) {
    const was = kept[name], is = takenBack.includes(name) ? false : flags[name];
    if (was === undefined) continue;
    if (is === undefined) { if (isSame) free[name] = was; }
    else if (`${is}` !== `${was}`) {
      const measured = inOneLine(`--${name} ${was}`);
      printError(
        `note: the profile is of ${measured}, the plan of ${is}: costs are scaled, or missing`,
      );
    }
  }
  const inherited = readKeptFlags(free, PLANNED_FLAGS, inOneLine(path));
  const all: Readonly<Record<string, unknown>> = { ...inherited, ...flags };
  const args = Object.keys(PLANNED_FLAGS).filter((name) => all[name] !== undefined)
    .map((name) => all[name] === true ? `--${name}` : `--${name}=${all[name]}`);
  const request = await readTrainFlags([...args, ...SMALL]);
  const { data, ...parts } = await importComponents(request);
  const isNamed = inherited.vocab === undefined || DATA.some((name) => flags[name] !== undefined);
  const value = isNamed ? data.value : EMPTY_DATA;
  const task = await taskOf(request, { ...parts, data: { ...data, value } });
  return {
    /** The flags of `troupe train` that name the model. */
    args,
    /** The model and its data. */
    task,
    /** Options of a run of the model. */
    options: runOptions(request, parts),
  };
}

/** Sizes of absent data: bytes of a text, and images of MNIST. */
export const DATA_SIZES: Readonly<Record<string, number>> = {
  ...{ vocab: 256, inputs: 784, classes: 10 },
  ...{ channels: 1, height: 28, width: 28 },
};

/** Data without batches, for a model whose vocabulary is known from its profile only. */
const EMPTY_DATA: DataComponent = {
  name: "none",
  version: "1",
  open: ({ vocab = DATA_SIZES.vocab! }) => ({ batches: [], sizes: { ...DATA_SIZES, vocab } }),
};
