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
import {
  checkFile,
  checkSameFiles,
  type DataFiles,
  readDataFiles,
  rememberFiles,
  textOf,
} from "./data_files.ts";
import { parseFlags, withDefaults } from "../flags/flags.ts";
import {
  checkResumable,
  checkSameModel,
  describeNotInherited,
  inheritedFlags,
} from "./inherited.ts";
import { readScheduleFile, scheduleOptionsOf } from "../schedule/schedule_flags.ts";
import {
  type GivenTrainFlags,
  INHERITED_FLAGS,
  TRAIN_FLAGS,
  type TrainFlags,
} from "./train_flags.ts";

/** What the flags of a run say. */
export interface TrainRequest {
  /** The flags as they were given. */
  readonly args: readonly string[];
  /** All flags, with inherited and default values. */
  readonly flags: TrainFlags;
  /** The flags that a checkpoint remembers. */
  readonly remembered: GivenTrainFlags;
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
  const given = parseFlags(args, TRAIN_FLAGS), { resume } = given;
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
  if (checkpoint) {
    checkResumable(checkpoint, inherited, given, flags.steps);
    checkSameFiles(checkpoint, given, files, args, tell);
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
    args,
    flags,
    remembered: rememberedOf(flags),
    files,
    schedule,
    microBatches: schedule.microBatches,
    checkpoint,
    start: from && [...told, from].join("\n"),
    out: flags.out ?? (resume === undefined ? undefined : runFolder(resume)) ??
      (flags.json ? undefined : `runs/${flags.model}`),
  };
}

/** What a checkpoint keeps of the flags: all that a run inherits. */
function rememberedOf(flags: TrainFlags): GivenTrainFlags {
  return Object.fromEntries(
    Object.entries(flags).filter(([name]) => Object.hasOwn(INHERITED_FLAGS, name)),
  );
}

/**
 * What the checkpoints of a run say, so that a run can go on from them.
 *
 * @param model what rebuilds the model.
 * @throws {RangeError} when the run goes on from a checkpoint of another model.
 */
export function checkpointConfig(
  { remembered, files, checkpoint }: TrainRequest,
  model: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  if (checkpoint) checkSameModel(checkpoint, model);
  return { ...model, flags: remembered, files: rememberFiles(files) };
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
