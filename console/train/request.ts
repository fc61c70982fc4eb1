/**
 * The request of a run, from flags, files and checkpoints, and its record in checkpoints, from which a
 * run can be resumed or repeated.
 *
 * @module
 */

import { DECODERS } from "../../actors/checkpoints/hugging_face.ts";
import { goesOnIn, real } from "../../actors/checkpoints/lock.ts";
import type { Checkpoint } from "../../actors/checkpoints/format.ts";
import { locateCheckpoint } from "../../actors/checkpoints/read.ts";
import { readAdapterConfig } from "../../actors/checkpoints/peft.ts";
import { checkSizes, formatLora } from "../../actors/options/limits.ts";
import { assertInput, inputFileProblem } from "../../kernels/internal.ts";
import type { Schedule } from "../../schedules/mod.ts";
import { checkFile } from "../command.ts";
import { readScheduleFile } from "../commands/schedule.ts";
import {
  choiceOf,
  costsOf,
  rankSchedules,
  type ScheduleChoice,
  scheduleOf,
} from "../commands/schedule_flags.ts";
import { TOKENIZER_FILE } from "../commands/trained.ts";
import { currentName, DASHBOARD_FLAGS, withDefaults } from "../flag.ts";
import {
  type ConfigFile,
  parseArguments,
  rawArguments,
  readConfigFile,
  readKeptFlags,
  TYPED_ONLY,
} from "../parse.ts";
import {
  makeRunFolder,
  refuseBranch,
  runFolder,
  runToResume,
} from "../../actors/run_folder/read.ts";
import type { KeptComponents } from "../../actors/run_folder/metrics_file.ts";
import { ensure, inOneLine, printError, quoted } from "../terminal.ts";
import {
  checkSameFiles,
  keptStarts,
  readDataFiles,
  rememberFiles,
  sizesOfWeights,
  textOf,
  tokenizerOfRun,
} from "./data_files.ts";
import {
  type GivenTrainFlags,
  INHERITED_FLAGS,
  MODEL_FLAGS,
  ONNX_FLAGS,
  refuseUnused,
  TRAIN_FLAGS,
  type TrainFlags,
} from "./flags.ts";
import { isOnnxFile, readOnnxFile, sizesOfOnnx } from "./onnx.ts";

/** Files that the run replaces when it starts. */
const WRITTEN = ["trace", "journal"] as const;

const DATA = ["text", "tokens", "token-lengths"] as const;
const READ = [...DATA, "schedule-file", "tokenizer", "weights", "config", "profile"] as const;

/**
 * Makes sure that no file is written that the run reads, and none twice.
 *
 * @throws {TypeError} naming both flags.
 */
function checkWrittenFiles(given: GivenTrainFlags): void {
  for (const [i, flag] of WRITTEN.entries()) {
    const path = given[flag];
    if (path === undefined) continue;
    const other = [...READ, ...WRITTEN.slice(i + 1)].find((other) =>
      given[other] !== undefined && real(given[other]) === real(path)
    );
    const must = "it must name another file", received = `that of --${other}`;
    assertInput(other === undefined, `write --${flag}`, must, received, TypeError);
  }
}

/** A checkpoint without its tensors. */
type KeptRun = Omit<Checkpoint, "state" | "shapes">;

type Values = Readonly<Record<string, unknown>>;

/**
 * The flags that a run inherits.
 *
 * @param takenBack the switches that it does without.
 * @throws {TypeError} {@linkcode RangeError} when one is none that could be typed, or a switch that
 * is taken back belongs to the model.
 */
function inheritedFlags({ path, config }: KeptRun, takenBack: readonly string[]): GivenTrainFlags {
  const kept: Values = readKeptFlags(config.flags ?? {}, INHERITED_FLAGS, path);
  const fixed = takenBack.find((name) => kept[name] === true && Object.hasOwn(MODEL_FLAGS, name));
  const must = `--${fixed} must be true, as in this checkpoint`;
  assertInput(fixed === undefined, `resume from ${path}`, must, "false");
  return Object.fromEntries(Object.entries(kept).filter(([name]) => !takenBack.includes(name)));
}

/** Flags of the start and of the folder of a run, which `--resume` replaces. */
const REPLACED = ["resume", "weights", "adapter", "out", "config", "overwrite"];

/** Values of inherited flags that must be named again: modules and ONNX files. */
const NAMED_AGAIN = /^(jsr:|npm:|https?:|file:|\.{1,2}\/)|\.onnx$/;

/** Returns the words of the given flags that the command which resumes a run must repeat. */
export function repeatedFlags(args: readonly string[]): string[] {
  const { flags, takenBack } = rawArguments(args, TRAIN_FLAGS);
  const isRepeated = (name: string, value: string | true) =>
    !REPLACED.includes(name) &&
    (!Object.hasOwn(INHERITED_FLAGS, name) || value !== true && NAMED_AGAIN.test(value));
  const given = Object.entries(flags).filter(([name, value]) => isRepeated(name, value));
  return [
    ...given.flatMap(([name, value]) => value === true ? [`--${name}`] : [`--${name}`, value]),
    ...takenBack.filter((name) => isRepeated(name, true)).map((name) => `--no-${name}`),
  ];
}

/** Reports the flags of a checkpoint that no run inherits. */
function tellNotInherited({ path, config }: KeptRun, tell: (line: string) => void): void {
  const data = ["text", "tokens"]; // Troupe 0.1 kept these; they must be named again
  const names = Object.keys(config.flags ?? {}).filter((name) =>
    !Object.hasOwn(INHERITED_FLAGS, currentName(name, INHERITED_FLAGS)) && !data.includes(name)
  );
  const shown = names.slice(0, 5).map(inOneLine).join(", ");
  if (shown !== "") tell(`${path} says more than a run inherits; passed over: ${shown}`);
}

/** Refuses another model than the checkpoint's, and a run that would have to go back. */
function checkResumable(
  { path, step, config }: KeptRun,
  inherited: Values,
  given: Values,
  steps: number,
): void {
  const cannot = `resume from ${path}`, kept: Values = { ...config, ...inherited };
  for (const name of Object.keys({ ...MODEL_FLAGS, ...ONNX_FLAGS })) {
    if (Object.hasOwn(config.parts ?? {}, name)) continue; // a module, known by its hash
    const isSame = given[name] === undefined || given[name] === kept[name];
    const right = kept[name] === undefined ? "left out" : inOneLine(String(kept[name]));
    assertInput(isSame, cannot, `--${name} must be ${right}, as in this checkpoint`, given[name]);
  }
  const isNew = given.lora !== undefined && inherited.lora === undefined;
  const none = "--lora must be left out, because the run has no adapter";
  const remedy = "export the run, and name the exported folder with --weights";
  assertInput(!isNew, cannot, none, `one; ${remedy}`);
  const must = `--steps must be at least ${step}, the steps of this checkpoint`;
  assertInput(steps >= step, cannot, must, steps);
}

/**
 * Checks that the model of the flags is that of the checkpoint.
 *
 * @param config Configuration of the model.
 * @throws {RangeError} with the difference.
 */
function checkSameModel({ path, config: kept }: KeptRun, config: Values): void {
  for (const [name, value] of Object.entries(config)) {
    const isSame = kept[name] === undefined || kept[name] === value;
    const must = `its ${name} must be that of its flags, ${value}`;
    assertInput(isSame, `resume from ${path}`, must, quoted(kept[name]));
  }
}

/** Reads the file of flags, and returns its arguments followed by the typed ones. */
export function withConfig(args: readonly string[]) {
  const { flags } = rawArguments(args, TRAIN_FLAGS), { config: path } = flags;
  if (path === undefined) return { config: undefined, args };
  const config = readConfigFile(String(path), TRAIN_FLAGS), typed = Object.keys(flags);
  const said = config.args.filter((arg) => !typed.some((name) => displaces(name, arg)));
  return { config, args: [...said, ...args] };
}

/** Flags that exclude another flag: if that flag is typed, these are not read from a file. */
const DISPLACED: Readonly<Record<string, readonly string[]>> = {
  text: ["tokens", "token-lengths", "data"],
  tokens: ["text", "token-lengths", "data"],
  data: ["text", "tokens", "token-lengths"],
  schedule: ["schedule-file"],
  "schedule-file": ["schedule", "workers", "micro-batches"],
  device: ["adapters"],
  adapters: ["device"],
};

const displaces = (typed: string, arg: string): boolean =>
  [typed, ...DISPLACED[typed] ?? []].some((name) => arg.startsWith(`--${name}=`));

/**
 * A run as its flags describe it:
 *
 * - `args`: the given flags, those of `--config` first, then the choices for `auto` and the flags of
 *   {@linkcode firstSteps};
 * - `typed`: the flags as they were typed;
 * - `given`: names of the flags that the user gave, and no checkpoint;
 * - `flags`: all flags, with inherited and default values;
 * - `files`: the user's files that the run reads;
 * - `tokenizer`: the file of its tokenizer; undefined where that comes with Troupe;
 * - `onnx`: the ONNX file that is trained; undefined where a part builds the model;
 * - `before`: record of the run that is resumed or repeated;
 * - `schedule`: that of `--schedule-file`, or the named one;
 * - `choices`: with `--schedule auto`, what may be in place of the choice, the fastest first;
 * - `microBatches`: micro-batches of a step of each data-parallel replica;
 * - `checkpoint`: checkpoint from which the run continues;
 * - `start`: notice about the start of a run with `--resume`, and about skipped data or checks;
 * - `out`: folder of checkpoints, if given.
 */
export type TrainRequest = Awaited<ReturnType<typeof readTrainFlags>>;

/**
 * Reads the flags of `troupe train`, the files that they name, and the checkpoint that `--resume`
 * names.
 *
 * @param typed the arguments of the command.
 * @param chosen Flags in place of `--schedule auto`; the fastest choice unless given.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function readTrainFlags(typed: readonly string[], chosen?: ScheduleChoice) {
  const { config, args } = withConfig(typed);
  const asIs = parseArguments(args, TRAIN_FLAGS).flags;
  const names = checkTogether(asIs, typed, config?.checkpoint !== undefined);
  checkWrittenFiles(asIs);
  const files = await readDataFiles(asIs, printError);
  const resume = asIs.resume === undefined ? undefined : runToResume(asIs.resume);
  const given = resume === undefined ? asIs : { ...asIs, resume }, listed = files["schedule-file"];
  const fromFile = listed && readScheduleFile(listed.path, textOf(listed), given);
  const sizes = fromFile &&
    { workers: fromFile.workers, "micro-batches": fromFile.microBatches };
  const told: string[] = [], tell = (line: string) => void told.push(line);
  // Each worker reads its own tensors.
  const checkpoint = resume === undefined ? undefined : await locateCheckpoint(resume, tell);
  const { takenBack } = rawArguments(args, TRAIN_FLAGS);
  const inherited = checkpoint ? inheritedFlags(checkpoint, takenBack) : {};
  const ofWeights = checkpoint ? {} : await flagsOfWeights(given, takenBack);
  const onnx = isOnnxFile(given.model) ? readOnnxFile(given.model!) : undefined;
  const ofOnnx = onnx && sizesOfOnnx(onnx, { ...inherited, ...given });
  const said = { ...inherited, ...ofWeights, ...ofOnnx, ...given, ...sizes };
  const wanted = withDefaults(TRAIN_FLAGS, said);
  const choices = chosen || wanted.schedule !== "auto" ? [] : choicesOf(wanted, checkpoint);
  const choice = fromFile ? undefined : chosen ?? choices[0] ?? mailboxOf(wanted);
  const asked: TrainFlags = { ...wanted, ...choice?.flags };
  if (choice) tell(choice.told);
  const before = checkpoint
    ? { ...checkpoint, doing: "resume from" } as const
    : config?.checkpoint &&
      { path: config.path, config: config.checkpoint, doing: "repeat the run of" } as const;
  const found = tokenizerOfRun(given, before, ofWeights.vocab);
  const tokenizer = typeof found === "object" ? found : undefined;
  const named = { ...given, ...tokenizer && { tokenizer: TOKENIZER_FILE } };
  if (checkpoint) checkResumable(checkpoint, inherited, named, asked.steps);
  if (before) checkSameFiles(before, given, files, typed, tell);
  if (checkpoint) tellNotInherited(checkpoint, tell);
  else if (asked.weights !== undefined) checkWeights(asked.weights);
  const { workers, "micro-batches": microBatches, replicas } = asked;
  checkSizes({ workers, microBatches, replicas });
  const schedule = scheduleOf(asked, fromFile);
  const first = { ...choice?.flags, ...before ? {} : firstSteps(asked, given, schedule) };
  const flags = { ...withTokenizer(asked, found), ...first };
  const start = checkpoint
    ? `Resuming from ${checkpoint.path}, after step ${checkpoint.step}.`
    : resume && `There is no checkpoint in ${resume}: starting at step 1.`;
  const out = flags.out ?? (resume === undefined ? undefined : runFolder(resume));
  refuseWithoutPlace(config, flags, schedule, out);
  return {
    args: [...args, ...Object.entries(first).map(([name, value]) => `--${name}=${value}`)],
    typed,
    given: names,
    flags,
    files,
    tokenizer,
    onnx,
    before,
    schedule,
    choices,
    microBatches: schedule.microBatches,
    checkpoint,
    start: [...told, ...start ? [start] : []].join("\n") || undefined,
    out,
  };
}

/** Refuses to repeat a run whose bits depend on checkpoints that have no place. */
function refuseWithoutPlace(
  config: ConfigFile | undefined,
  flags: TrainFlags,
  schedule: Schedule,
  out: string | undefined,
): void {
  const depends = schedule.updates !== "flush" && flags["checkpoint-every"] !== undefined;
  const hasNone = config?.checkpoint && out === undefined && flags.json;
  const must =
    `--out must say where its checkpoints go, on which the bits of ${schedule.name} depend`;
  ensure(!(hasNone && depends), `repeat the run of ${config?.path}`, must);
}

/** Returns the choices that a simulation of the schedule makes. */
function mailboxOf(flags: TrainFlags) {
  const { workers, "micro-batches": microBatches } = flags;
  checkSizes({ workers, microBatches, replicas: flags.replicas });
  const choice = choiceOf(flags.schedule, flags, { workers, microBatches }, costsOf(flags));
  return choice && { ...choice, told: `message-driven: ${choice.told}` };
}

/** Flags of message-driven that `--schedule auto` decides. */
const DECIDED = ["order", "chunks", "activation-limit", "pipeline-limit"] as const;

/** Flags that `--schedule auto` chooses. */
const CHOSEN = ["schedule", "order", "chunks", "activation-limit", "jitter"];

/** Returns the choices for `--schedule auto`; a resumed run keeps that of its checkpoint. */
function choicesOf(flags: TrainFlags, kept: KeptRun | undefined): readonly ScheduleChoice[] {
  const { workers, "micro-batches": microBatches, replicas } = flags;
  const run = Object.entries((kept?.config.run ?? {}) as Values);
  const args = run.filter(([name]) => CHOSEN.includes(name)).map(([name, value]) =>
    `--${name}=${value}`
  );
  if (args.some((arg) => arg.startsWith("--schedule="))) {
    const same = parseArguments(args, TRAIN_FLAGS).flags as ScheduleChoice["flags"];
    return [{ flags: same, told: `${args.join(" ")}: as before` }];
  }
  checkSizes({ workers, microBatches, replicas });
  return rankSchedules(flags, { workers, microBatches }, costsOf(flags));
}

/**
 * Refuses flags that exclude each other or have no effect.
 *
 * @param isRecord Whether some come from the configuration of a checkpoint, which keeps all flags.
 * @returns the names of the flags of the user.
 */
function checkTogether(
  given: GivenTrainFlags,
  typed: readonly string[],
  isRecord: boolean,
): string[] {
  const { flags } = rawArguments(typed, TRAIN_FLAGS), names = Object.keys(isRecord ? flags : given);
  const { text, tokens, model } = given, hasBoth = text !== undefined && tokens !== undefined;
  ensure(!hasBoth, "train", "the data must come from one file", "--text and --tokens");
  const own = (Object.keys(ONNX_FLAGS) as (keyof typeof ONNX_FLAGS)[]).find((flag) => given[flag]);
  const mustBeOnnx = "--model must name an ONNX file, which ends in .onnx";
  ensure(own === undefined || isOnnxFile(model), `use --${own}`, mustBeOnnx, model);
  const decided = given.schedule === "auto" && DECIDED.find((flag) => names.includes(flag));
  const must = `--${decided} must be left out, as --schedule auto chooses it`;
  ensure(!decided, "choose a schedule", must, `${given[decided || "order"]}`);
  refuseUnused(given, flags, isRecord);
  return names;
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
 * Returns flags that stabilize the first steps of a GPT or T5 with random weights, unless they are
 * given: gradients are clipped to norm 1, and the default rate, which is high, gets a warm-up. Of five
 * seeds, clipping alone suffices for two, and both for all. Without a flush there is no norm of all
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

/** Returns whether a folder of Hugging Face's may say the sizes of a model. */
const isDecoder = (name: string | undefined): boolean =>
  name === undefined || DECODERS.some(({ model }) => model === name);

/** Returns the flags that the folders of weights and of an adapter set. */
async function flagsOfWeights(
  given: GivenTrainFlags,
  takenBack: readonly string[],
): Promise<GivenTrainFlags> {
  const { weights, adapter, model } = given;
  const hasSizes = weights !== undefined && isDecoder(model);
  return {
    ...hasSizes && await sizesOfWeights(weights, given, takenBack),
    ...adapter !== undefined && { lora: formatLora(readAdapterConfig(adapter)) },
  };
}

/** Weights are a file, or in a folder that is looked into when they are read. */
function checkWeights(path: string): void {
  if (inputFileProblem(path) !== "a folder") checkFile("weights", path);
}

/** The folder of a run. */
export type RunPlace = NonNullable<Awaited<ReturnType<typeof placeOf>>>;

/**
 * Returns the folder of a run: the named one, or a new one with a number; none with `--json` and
 * without a name.
 *
 * @param model Name of its model.
 * @param made Receives the folder that was made, which is removed if it stays empty.
 * @throws {RangeError} when the folder has later checkpoints than the one to resume from.
 */
export async function placeOf(request: TrainRequest, model: string, made: DisposableStack) {
  const { out, checkpoint, flags: { json, overwrite, resume } } = request;
  if (out === undefined) {
    return json ? undefined : { directory: made.use(makeRunFolder(model)).path, isInPlace: false };
  }
  /** True if the checkpoint from which the run continues is there. */
  const isInPlace = checkpoint !== undefined && goesOnIn(out, { resume: checkpoint });
  if (isInPlace && !overwrite) await refuseBranch(resume!, checkpoint, out);
  return { directory: out, isInPlace };
}

/**
 * Returns the record of a run in its checkpoints: the model, the inherited flags (`flags`), the other
 * flags except paths, for `--config` (`run`), the files that it read (`files`), and the modules that
 * it ran (`parts`).
 *
 * @param model Configuration of the model.
 * @param parts The user's modules.
 * @throws {RangeError} when the run continues from a checkpoint of another model.
 */
export function checkpointConfig(
  { args, flags, files, tokenizer, checkpoint }: TrainRequest,
  model: Readonly<Record<string, unknown>>,
  parts: KeptComponents,
): Readonly<Record<string, unknown>> {
  if (checkpoint) checkSameModel(checkpoint, model);
  const starts = checkpoint ? keptStarts(checkpoint.config) : flags;
  return {
    ...model,
    flags: rememberedFlags(flags, parts),
    files: rememberFiles({ ...files, ...tokenizer && { tokenizer } }, starts),
    ...Object.keys(parts).length > 0 && { parts },
    run: runningFlags(flags, args, parts),
  };
}

/** Returns the flags for a checkpoint: the inherited ones, without modules. */
export function rememberedFlags(
  flags: TrainFlags,
  parts: KeptComponents,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(flags).filter(([name]) =>
      Object.hasOwn(INHERITED_FLAGS, name) && !Object.hasOwn(parts, name)
    ),
  );
}

/**
 * Returns the other flags for a checkpoint, as typed, without paths and without flags of output.
 */
function runningFlags(
  flags: TrainFlags,
  args: readonly string[],
  parts: KeptComponents,
): Record<string, unknown> {
  const typed = rawArguments(args, TRAIN_FLAGS).flags, isOfFile = flags["schedule-file"];
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(flags)) {
    const { kind } = TRAIN_FLAGS[name as keyof TrainFlags];
    if (kind === "path" || TYPED_ONLY.includes(name) || Object.hasOwn(INHERITED_FLAGS, name)) {
      continue;
    }
    if (Object.hasOwn(parts, name) || Object.hasOwn(DASHBOARD_FLAGS, name)) continue;
    if (name === "schedule" && isOfFile !== undefined) continue;
    kept[name] = kind === "own" ? typed[name] : value;
  }
  return kept;
}
