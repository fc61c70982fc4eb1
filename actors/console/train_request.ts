/**
 * What a `troupe train` command asks for: its flags, with what a resumed run inherits.
 *
 * @module
 */

import { basename, dirname } from "node:path";
import { ADAMW_DEFAULTS } from "../../kernels/mod.ts";
import { createSchedule, type Schedule } from "../../schedules/mod.ts";
import { type Checkpoint, readCheckpoint } from "../checkpoint.ts";
import { stepFolder } from "../checkpoint_folders.ts";
import type { TrainOptions } from "../train_options.ts";
import { parseFlags, withDefaults } from "./flags.ts";
import { readScheduleFile, scheduleOptionsOf } from "./schedule_flags.ts";
import {
  type GivenTrainFlags,
  LEARNING_FLAGS,
  MODEL_FLAGS,
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

/** Where the data comes from; a file of one's own takes the place of a built-in text. */
const SOURCES = ["data", "text", "tokens"] as const;

/**
 * Reads the flags of `troupe train`, and the checkpoint that `--resume` names.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function readTrainFlags(args: readonly string[]): Promise<TrainRequest> {
  const given = parseFlags(args, TRAIN_FLAGS), { resume } = given;
  const sources = SOURCES.filter((name) => given[name] !== undefined);
  if (given.text !== undefined && given.tokens !== undefined) {
    throw new TypeError(
      "Cannot train: the data must come from one file, received --text and --tokens",
    );
  }
  const file = given["schedule-file"];
  if (file !== undefined) await checkFile("schedule-file", file);
  const fromFile = file === undefined ? undefined : await readScheduleFile(file, given);
  const sizes = fromFile &&
    { workers: fromFile.workers, "micro-batches": fromFile.microBatches };
  const passedOver: string[] = [];
  const checkpoint = resume === undefined
    ? undefined
    : await readCheckpoint(resume, (line) => passedOver.push(line));
  const inherited: GivenTrainFlags = { ...checkpoint?.config.flags as GivenTrainFlags };
  // Other data than the checkpoint's takes its place.
  if (sources.length > 0) { for (const name of SOURCES) delete (inherited as Flags)[name]; }
  const flags = withDefaults(TRAIN_FLAGS, { ...inherited, ...given, ...sizes });
  if (checkpoint) checkResumable(checkpoint, given, flags.steps);
  for (const name of ["text", "tokens", "weights"] as const) {
    const isUsed = flags[name] !== undefined && !(name === "weights" && checkpoint);
    if (isUsed) await checkFile(name, flags[name]!);
  }
  const remembered = Object.fromEntries(
    Object.entries(flags).filter(([name]) => name in MODEL_FLAGS || name in LEARNING_FLAGS),
  );
  const out = flags.out ?? (resume === undefined ? undefined : runFolder(resume)) ??
    (flags.json ? undefined : `runs/${flags.model}`);
  const from = checkpoint
    ? `Going on from ${checkpoint.path}, after step ${checkpoint.step}.`
    : resume && `There is no checkpoint in ${resume}: starting at step 1.`;
  const start = from && [...passedOver, from].join("\n");
  const { workers, "micro-batches": microBatches } = flags;
  const schedule = fromFile ??
    createSchedule(flags.schedule, { ...scheduleOptionsOf(flags), workers, microBatches });
  return {
    args,
    flags,
    remembered,
    schedule,
    microBatches: schedule.microBatches,
    checkpoint,
    start,
    out,
  };
}

type Flags = Record<string, unknown>;

/** The folder of a run: a checkpoint's own folder stands in it. */
const runFolder = (path: string) => stepFolder(basename(path)) ? dirname(path) : path;

/** Refuses another model than the checkpoint's, and a run that would have to go back. */
function checkResumable({ path, step, config }: Checkpoint, given: Flags, steps: number): void {
  const kept: Flags = { ...config.flags as Flags, ...config };
  for (const name of Object.keys(MODEL_FLAGS)) {
    if (given[name] === undefined || given[name] === kept[name]) continue;
    throw new RangeError(
      `Cannot resume from ${path}: --${name} must be ${
        kept[name] ?? "left out"
      }, as in this checkpoint, received ${given[name]}`,
    );
  }
  if (steps < step) {
    throw new RangeError(
      `Cannot resume from ${path}: --steps must be at least ${step}, the steps of this checkpoint, received ${steps}`,
    );
  }
}

/** Refuses a file that cannot be read. */
async function checkFile(name: string, path: string): Promise<void> {
  let problem: string | undefined;
  try {
    if ((await Deno.stat(path)).isDirectory) problem = "a folder";
  } catch (error) {
    problem = error instanceof Deno.errors.NotFound ? "no such file" : (error as Error).message;
  }
  if (problem === undefined) return;
  throw new TypeError(
    `Cannot use --${name}: it must name a file that can be read, received "${path}" (${problem})`,
  );
}

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
