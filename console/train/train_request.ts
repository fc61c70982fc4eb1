/**
 * What a `troupe train` command asks for: its flags, with what a resumed run inherits.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { basename, dirname } from "node:path";
import { stepFolder } from "../../actors/checkpoints/checkpoint_folders.ts";
import {
  type Checkpoint,
  locateCheckpoint,
  type TensorSource,
} from "../../actors/checkpoints/mod.ts";
import { inputFileProblem } from "../../kernels/mod.ts";
import { DECODERS } from "../../actors/checkpoints/hugging_face/decoders.ts";
import { checkSizes } from "../../actors/run/options/sizes.ts";
import type { Schedule } from "../../schedules/mod.ts";
import { checkFile } from "../check_file.ts";
import { quoted } from "../escape.ts";
import { withDefaults } from "../flags/flag.ts";
import { isOnnxFile, type OnnxFile, readOnnxFile, sizesOfOnnx } from "../onnx/onnx_file.ts";
import { parseFlags, rawArguments } from "../flags/parse.ts";
import { printError } from "../print.ts";
import { choiceOf } from "../schedule/chosen_mailbox.ts";
import { readScheduleFile } from "../schedule/schedule_file.ts";
import { costsOf, scheduleOf } from "../schedule/schedule_flags.ts";
import {
  checkSameFiles,
  type DataFiles,
  type Doing,
  readDataFiles,
  type Remembering,
  textOf,
} from "./data_files.ts";
import { TOKENIZER_FILE, type TokenizerFile } from "../trained/tokenizer_source.ts";
import { meantRun, runPath } from "../run_files/run_folder.ts";
import { checkWrittenFiles } from "../run_files/written_files.ts";
import { ONNX_FLAGS } from "./flags/onnx_flags.ts";
import { checkResumable, describeNotInherited, inheritedFlags } from "./inherited.ts";
import { type GivenTrainFlags, TRAIN_FLAGS, type TrainFlags } from "./train_flags.ts";
import { tokenizerOfRun } from "./run_tokenizer.ts";
import { sizesOfWeights } from "./weights_folder.ts";
import { withConfig } from "./with_config.ts";

/** What the flags of a run say. */
export interface TrainRequest {
  /**
   * The flags as they were given, those of `--config` first, then what was chosen in the place of
   * `auto`, and those of {@linkcode firstSteps}.
   */
  readonly args: readonly string[];
  /** The flags as they were typed. */
  readonly typed: readonly string[];
  /** Names of the flags that the user gave, and no checkpoint. */
  readonly given: readonly string[];
  /** All flags, with inherited and default values. */
  readonly flags: TrainFlags;
  /** The files of one's own that it reads. */
  readonly files: DataFiles;
  /** The file of its tokenizer; undefined where that comes with Troupe. */
  readonly tokenizer: TokenizerFile | undefined;
  /** The ONNX file that is trained; undefined where a part builds the model. */
  readonly onnx: OnnxFile | undefined;
  /** The schedule: that of `--schedule-file`, or the one that is named. */
  readonly schedule: Schedule;
  /** Micro-batches of a step of each data-parallel replica. */
  readonly microBatches: number;
  /** The checkpoint from which the run goes on. */
  readonly checkpoint: Checkpoint<TensorSource> | undefined;
  /** What remembers a run that is gone on with or made again. */
  readonly before: Remembering & { readonly doing: Doing } | undefined;
  /** Where a run with `--resume` starts, and what is passed over or taken unseen, in words. */
  readonly start: string | undefined;
  /** Where checkpoints go, if that was said. */
  readonly out: string | undefined;
}

/**
 * Reads the flags of `troupe train`, the files that they name, and the checkpoint that `--resume`
 * names.
 *
 * @param typed the arguments of the command.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function readTrainFlags(typed: readonly string[]): Promise<TrainRequest> {
  const { config, args } = withConfig(typed);
  const asIs = parseFlags(args, TRAIN_FLAGS);
  checkTogether(asIs);
  checkWrittenFiles(asIs);
  const files = await readDataFiles(asIs, printError);
  const resume = asIs.resume === undefined ? undefined : runToResume(asIs.resume);
  const given = resume === undefined ? asIs : { ...asIs, resume }, listed = files["schedule-file"];
  const fromFile = listed && readScheduleFile(listed.path, textOf(listed), given);
  const sizes = fromFile &&
    { workers: fromFile.workers, "micro-batches": fromFile.microBatches };
  const told: string[] = [], tell = (line: string) => void told.push(line);
  // Each worker reads what it holds.
  const checkpoint = resume === undefined ? undefined : await locateCheckpoint(resume, tell);
  const { takenBack } = rawArguments(args, TRAIN_FLAGS);
  const inherited = checkpoint ? inheritedFlags(checkpoint, takenBack) : {};
  const ofWeights = checkpoint || given.weights === undefined || !isDecoder(given.model)
    ? {}
    : await sizesOfWeights(given.weights, given, takenBack);
  const onnx = isOnnxFile(given.model) ? readOnnxFile(given.model!) : undefined;
  const ofOnnx = onnx && sizesOfOnnx(onnx, { ...inherited, ...given });
  const said = { ...inherited, ...ofWeights, ...ofOnnx, ...given, ...sizes };
  const wanted = withDefaults(TRAIN_FLAGS, said);
  const choice = fromFile ? undefined : mailboxOf(wanted);
  const asked = { ...wanted, ...choice?.flags };
  if (choice) tell(`message-driven: ${choice.told}`);
  const before = checkpoint
    ? { ...checkpoint, doing: "resume from" } as const
    : config?.checkpoint &&
      { path: config.path, config: config.checkpoint, doing: "repeat the run of" } as const;
  const found = tokenizerOfRun({ given, before, vocab: ofWeights.vocab });
  const tokenizer = typeof found === "object" ? found : undefined;
  const named = { ...given, ...tokenizer && { tokenizer: TOKENIZER_FILE } };
  if (checkpoint) checkResumable(checkpoint, inherited, named, asked.steps);
  if (before) checkSameFiles(before, before.doing, given, files, typed, tell);
  if (checkpoint) {
    const more = describeNotInherited(checkpoint);
    if (more) tell(more);
  } else if (asked.weights !== undefined) checkWeights(asked.weights);
  const { workers, "micro-batches": microBatches, replicas } = asked;
  checkSizes({ workers, microBatches, replicas });
  const schedule = scheduleOf(asked, fromFile);
  const first = { ...choice?.flags, ...before ? {} : firstSteps(asked, given, schedule) };
  const flags = { ...withTokenizer(asked, found), ...first };
  const start = checkpoint
    ? `Going on from ${checkpoint.path}, after step ${checkpoint.step}.`
    : resume && `There is no checkpoint in ${resume}: starting at step 1.`;
  const out = flags.out ?? (resume === undefined ? undefined : runFolder(resume));
  const depends = schedule.updates !== "flush" && flags["checkpoint-every"] !== undefined;
  if (config?.checkpoint && out === undefined && flags.json && depends) {
    throw new TypeError(
      `Cannot repeat the run of ${config.path}: --out must say where its checkpoints go, on which the bits of ${schedule.name} depend, received none`,
    );
  }
  return {
    args: [...args, ...Object.entries(first).map(([name, value]) => `--${name}=${value}`)],
    typed,
    given: Object.keys(config?.checkpoint ? rawArguments(typed, TRAIN_FLAGS).flags : given),
    flags,
    files,
    tokenizer,
    onnx,
    before,
    schedule,
    microBatches: schedule.microBatches,
    checkpoint,
    start: [...told, ...start ? [start] : []].join("\n") || undefined,
    out,
  };
}

/** What is left to a simulation of the schedule. */
function mailboxOf(flags: TrainFlags) {
  const { workers, "micro-batches": microBatches } = flags;
  checkSizes({ workers, microBatches, replicas: flags.replicas });
  return choiceOf(flags.schedule, flags, { workers, microBatches }, costsOf(flags));
}

/** Refuses flags that do not go together. */
function checkTogether(given: GivenTrainFlags): void {
  if (given.text !== undefined && given.tokens !== undefined) {
    throw new TypeError(
      "Cannot train: the data must come from one file, received --text and --tokens",
    );
  }
  if (given["trace-steps"] && given.trace === undefined) {
    throw new TypeError(
      "Cannot trace: --trace must name the file for --trace-steps, received none",
    );
  }
  const own = (Object.keys(ONNX_FLAGS) as (keyof typeof ONNX_FLAGS)[]).find((flag) => given[flag]);
  if (own !== undefined && !isOnnxFile(given.model)) {
    throw new TypeError(
      `Cannot use --${own}: --model must name an ONNX file, which ends in .onnx, received ${
        given.model ?? "none"
      }`,
    );
  }
  const lone = (["dashboard-stay", "dashboard-port"] as const).find((flag) => given[flag]);
  if (lone !== undefined && !given.dashboard) {
    throw new TypeError(
      `Cannot show a dashboard: --dashboard must be given with --${lone}, received none`,
    );
  }
}

/** Flags with the tokenizer that was found; no path is remembered among them. */
function withTokenizer(
  { tokenizer: asked, ...others }: TrainFlags,
  found: ReturnType<typeof tokenizerOfRun>,
): TrainFlags {
  if (typeof found === "object") return others;
  const tokenizer = found ?? asked;
  return tokenizer === undefined ? others : { ...others, tokenizer };
}

/**
 * What keeps the first steps of a GPT or T5 whose weights are drawn from leaps, where nobody has said it:
 * gradients are clipped to norm 1, and the default rate, which is high, is warmed up to. Of five
 * seeds clipping alone does it for two, and both for all. Without a flush there is no norm of all
 * gradients.
 */
function firstSteps(
  { model, weights, tokens, clip = 1, warmup }: TrainFlags,
  given: GivenTrainFlags,
  { updates }: Schedule,
): Pick<GivenTrainFlags, "clip" | "warmup"> {
  const begins = ["gpt", "t5"].includes(model) && weights === undefined && tokens === undefined;
  if (!begins || updates !== "flush") return {};
  const isOwnRate = [warmup, given.lr, given["lr-schedule"]].some((value) => value !== undefined);
  return { clip, ...clip > 0 && !isOwnRate && { warmup: 10 } };
}

/** Whether a folder of Hugging Face's may say the sizes of a model. */
const isDecoder = (name: string | undefined): boolean =>
  name === undefined || DECODERS.some(({ model }) => model === name);

/** Weights are a file, or in a folder that is looked into when they are read. */
function checkWeights(path: string): void {
  if (inputFileProblem(path) !== "a folder") checkFile("weights", path);
}

/** The path of the run to resume from; a folder without a checkpoint begins one. */
function runToResume(named: string): string {
  const path = runPath(named);
  if (existsSync(path)) return path;
  throw new RangeError(
    `Cannot resume from ${
      quoted(named)
    }: it must be a run's folder, its name below runs/ or an empty folder, received none${
      meantRun(named)
    }`,
  );
}

/** The folder of a run: a checkpoint's own folder stands in it. */
const runFolder = (path: string) => stepFolder(basename(path)) ? dirname(path) : path;
