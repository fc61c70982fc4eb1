/**
 * What a `troupe train` command asks for: its flags, with what a resumed run inherits.
 *
 * @module
 */

import { basename, dirname } from "node:path";
import { ADAMW_DEFAULTS } from "../../kernels/mod.ts";
import { createSchedule, type Schedule } from "../../schedules/mod.ts";
import { type Checkpoint, readCheckpoint } from "../../actors/checkpoints/mod.ts";
import { stepFolder } from "../../actors/checkpoints/checkpoint_folders.ts";
import type { TrainOptions } from "../../actors/run/options/train_options.ts";
import { checkSizes } from "../../actors/run/options/sizes.ts";
import { checkFile } from "../check_file.ts";
import {
  checkSameFiles,
  type DataFiles,
  keptWeights,
  readDataFiles,
  rememberFiles,
  textOf,
} from "./data_files.ts";
import { readConfigFile } from "../flags/config_file.ts";
import { withDefaults } from "../flags/flag.ts";
import { parseFlags, rawArguments } from "../flags/parse.ts";
import {
  checkResumable,
  checkSameModel,
  describeNotInherited,
  inheritedFlags,
} from "./inherited.ts";
import { readScheduleFile } from "../schedule/schedule_file.ts";
import { scheduleOptionsOf } from "../schedule/schedule_flags.ts";
import {
  type GivenTrainFlags,
  INHERITED_FLAGS,
  TRAIN_FLAGS,
  type TrainFlags,
} from "./train_flags.ts";

/** What the flags of a run say. */
export interface TrainRequest {
  /** The flags as they were given, those of `--config` first. */
  readonly args: readonly string[];
  /** All flags, with inherited and default values. */
  readonly flags: TrainFlags;
  /** The flags that a checkpoint remembers. */
  readonly remembered: GivenTrainFlags;
  /** What a checkpoint keeps of the other flags, for `--config`: no path is among them. */
  readonly running: Readonly<Record<string, unknown>>;
  /** The files of one's own that it reads. */
  readonly files: DataFiles;
  /** The schedule: that of `--schedule-file`, or the one that is named. */
  readonly schedule: Schedule;
  /** Micro-batches of a step of each data-parallel replica. */
  readonly microBatches: number;
  /** The checkpoint from which the run goes on. */
  readonly checkpoint: Checkpoint | undefined;
  /** Where a run with `--resume` starts, and which torn checkpoints it passes over, in words. */
  readonly start: string | undefined;
  /** Where checkpoints go. */
  readonly out: string | undefined;
}

/**
 * Reads the flags of `troupe train`, the files that they name, and the checkpoint that `--resume`
 * names.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function readTrainFlags(args: readonly string[]): Promise<TrainRequest> {
  const { config, all } = withConfig(args);
  const given = parseFlags(all, TRAIN_FLAGS), { resume } = given;
  if (given.text !== undefined && given.tokens !== undefined) {
    throw new TypeError(
      "Cannot train: the data must come from one file, received --text and --tokens",
    );
  }
  const files = readDataFiles(given), listed = files["schedule-file"];
  const fromFile = listed && readScheduleFile(listed.path, textOf(listed), given);
  const sizes = fromFile &&
    { workers: fromFile.workers, "micro-batches": fromFile.microBatches };
  const told: string[] = [], tell = (line: string) => void told.push(line);
  const checkpoint = resume === undefined ? undefined : await readCheckpoint(resume, tell);
  const inherited = checkpoint ? inheritedFlags(checkpoint) : {};
  const flags = withDefaults(TRAIN_FLAGS, { ...inherited, ...given, ...sizes });
  if (config?.checkpoint && !checkpoint) {
    const before = { path: config.path, config: config.checkpoint };
    checkSameFiles(before, "repeat the run of", given, files, args, tell);
  }
  if (checkpoint) {
    checkResumable(checkpoint, inherited, given, flags.steps);
    checkSameFiles(checkpoint, "resume from", given, files, args, tell);
    const more = describeNotInherited(checkpoint);
    if (more) tell(more);
  } else if (flags.weights !== undefined) checkFile("weights", flags.weights);
  const { workers, "micro-batches": microBatches, replicas } = flags;
  checkSizes({ workers, microBatches, replicas });
  const schedule = fromFile ??
    createSchedule(flags.schedule, { ...scheduleOptionsOf(flags), workers, microBatches });
  const from = checkpoint
    ? `Going on from ${checkpoint.path}, after step ${checkpoint.step}.`
    : resume && `There is no checkpoint in ${resume}: starting at step 1.`;
  return {
    args: all,
    flags,
    remembered: rememberedOf(flags),
    running: runningOf(flags, all),
    files,
    schedule,
    microBatches: schedule.microBatches,
    checkpoint,
    start: from || told.length > 0 ? [...told, ...from ? [from] : []].join("\n") : undefined,
    out: flags.out ?? (resume === undefined ? undefined : runFolder(resume)) ??
      (flags.json ? undefined : `runs/${flags.model}`),
  };
}

/** The file of flags that is named, and all arguments: what it says, then what was typed. */
function withConfig(args: readonly string[]) {
  const { flags } = rawArguments(args, TRAIN_FLAGS), { config: path } = flags;
  if (path === undefined) return { config: undefined, all: args };
  const config = readConfigFile(String(path), TRAIN_FLAGS), typed = Object.keys(flags);
  const said = config.args.filter((arg) => !typed.some((name) => displaces(name, arg)));
  return { config, all: [...said, ...args] };
}

/** Flags that cannot stand beside another: where it is typed, those of a file give way. */
const DISPLACED: Readonly<Record<string, readonly string[]>> = {
  text: ["tokens", "data"],
  tokens: ["text", "data"],
  data: ["text", "tokens"],
  schedule: ["schedule-file"],
  "schedule-file": ["schedule", "workers", "micro-batches"],
};

const displaces = (typed: string, arg: string): boolean =>
  DISPLACED[typed]?.some((name) => arg.startsWith(`--${name}=`)) ?? false;

/** What a checkpoint keeps of the flags: all that a run inherits. */
function rememberedOf(flags: TrainFlags): GivenTrainFlags {
  return Object.fromEntries(
    Object.entries(flags).filter(([name]) => Object.hasOwn(INHERITED_FLAGS, name)),
  );
}

/** What a checkpoint keeps of the other flags, each as it may be typed: no path, as they are data. */
function runningOf(flags: TrainFlags, args: readonly string[]): Record<string, unknown> {
  const typed = rawArguments(args, TRAIN_FLAGS).flags, ownSchedule = flags["schedule-file"];
  const kept = Object.entries(flags).filter(([name]) => {
    const { kind } = TRAIN_FLAGS[name as keyof TrainFlags];
    if (name === "schedule" && ownSchedule !== undefined) return false;
    return kind !== "path" && !Object.hasOwn(INHERITED_FLAGS, name);
  });
  return Object.fromEntries(kept.map(([name, value]) => {
    const { kind } = TRAIN_FLAGS[name as keyof TrainFlags];
    return [name, kind === "own" ? typed[name] : value];
  }));
}

/**
 * What the checkpoints of a run say, so that a run can go on from them.
 *
 * @param model what rebuilds the model.
 * @throws {RangeError} when the run goes on from a checkpoint of another model.
 */
export function checkpointConfig(
  { remembered, running, files, flags, checkpoint }: TrainRequest,
  model: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  if (checkpoint) checkSameModel(checkpoint, model);
  const weights = checkpoint ? keptWeights(checkpoint.config) : flags.weights;
  return { ...model, flags: remembered, files: rememberFiles(files, weights), run: running };
}

/** The folder of a run: a checkpoint's own folder stands in it. */
const runFolder = (path: string) => stepFolder(basename(path)) ? dirname(path) : path;

/**
 * The part of a run's options that the flags decide alone: all but the model and its data.
 *
 * @param program URL of the module that trains, which a journal wants to know.
 */
export function runOptions(
  { args, flags, schedule, microBatches, checkpoint }: TrainRequest,
  program?: string,
): Omit<TrainOptions, "model" | "data"> {
  return {
    steps: flags.steps,
    microBatches,
    workers: flags.workers,
    schedule,
    scheduleOptions: scheduleOptionsOf(flags),
    policy: flags.policy,
    replicas: flags.replicas,
    sync: flags.sync,
    reduce: flags.reduce,
    bucketSize: flags["bucket-size"],
    coarsening: flags.coarsening,
    link: flags["emulate-link"],
    precision: flags.precision,
    lossScale: flags["loss-scale"],
    clip: flags.clip,
    dropLast: flags["drop-last"],
    device: flags.device,
    runtime: flags.runtime,
    isolation: flags.isolation,
    journal: flags.journal === undefined ? undefined : {
      path: flags.journal,
      payloads: flags["journal-messages"],
      configuration: { train: args },
      program: program === undefined ? [] : [program],
      whenFull: flags["journal-full"],
    },
    retries: flags.retries,
    stallMs: 1000 * flags["stall-timeout"],
    recompute: flags.recompute,
    recomputeInterval: flags["recompute-interval"],
    offload: flags.offload,
    memoryLimitBytes: flags["memory-limit"],
    optimizer: {
      ...ADAMW_DEFAULTS,
      beta1: flags.beta1,
      beta2: flags.beta2,
      weightDecay: flags["weight-decay"],
    },
    learningRate: { rate: flags.lr, schedule: flags["lr-schedule"], warmup: flags.warmup },
    seed: flags.seed,
    weights: flags.weights,
    resume: checkpoint,
  };
}
