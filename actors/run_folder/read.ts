/**
 * Finds, makes and reads the folders of runs.
 *
 * @module
 */

import * as v from "valibot";
import {
  BYTES_MAX as CONFIG_BYTES_MAX,
  folderEntries,
  type StepFolder,
  stepFolder,
  stepFolders,
} from "../checkpoints/format.ts";
import { goesOnIn, isInUse, lstat, tryToRemove, unlessMissing } from "../checkpoints/lock.ts";
import { parseRecord } from "../checkpoints/markers.ts";
import {
  arrayOf,
  checkData,
  integer,
  isObject,
  numberWhere,
  objectOf,
  oneOf,
  quoted,
  text,
} from "../options/file_schema.ts";
import { suggest } from "../options/option.ts";
import { inOneLine } from "../runtime/types.ts";
import { COUNT_MAX, WORKERS_MAX } from "../options/limits.ts";
import { builtin, checkInputFile, refusal, resultOr } from "../../kernels/internal.ts";
import { readMetrics, RUN_FILES, RUN_FORMAT, RUN_VERSION, type RunRecord } from "./metrics_file.ts";

const { existsSync } = builtin("node:fs");
const { basename, dirname, join, parse, resolve } = builtin("node:path");

/** Limit of a run.json: a plan of some thousand stages. */
const BYTES_MAX = 2 ** 24;

/** Limits of texts, lists and nesting, above those of any run. */
const TEXT_MAX = 2 ** 16, LIST_MAX = 2 ** 16, DEPTH_MAX = 32;

/** Limit of stages: sixteen on each worker. */
const STAGES_MAX = 16 * WORKERS_MAX;

/** Bounds the depth of nested values, since they are printed recursively. */
const isShallow = (value: unknown, depth = DEPTH_MAX): boolean =>
  typeof value !== "object" || value === null ||
  depth > 0 && Object.values(value).every((one) => isShallow(one, depth - 1));

const TEXT = text(TEXT_MAX), TEXTS = arrayOf(TEXT, 0, LIST_MAX);
const NUMBER = numberWhere("a number", Number.isFinite), STEP = integer(0, COUNT_MAX);
const VALUES = objectOf({}), NAMED = objectOf({ name: TEXT, hash: v.optional(TEXT) });

const STAGE = objectOf({
  stage: integer(0, STAGES_MAX - 1),
  layers: TEXTS,
  parameters: NUMBER,
  costShare: NUMBER,
  workers: arrayOf(integer(0, WORKERS_MAX - 1), 0, WORKERS_MAX),
});

const PLAN = objectOf({
  schedule: TEXT,
  runtime: TEXT,
  parameters: NUMBER,
  replicas: integer(1, WORKERS_MAX),
  stages: arrayOf(STAGE, 1, STAGES_MAX),
});

const START = {
  afterStep: STEP,
  from: v.optional(TEXT),
  command: TEXTS,
  script: v.optional(TEXT),
  environment: VALUES,
};

const END = { reason: oneOf(["finished", "stopped early", "interrupted"]), step: STEP };

/** The fields of a record that are read. */
const RECORD = v.pipe(
  v.custom(isShallow, `at most ${DEPTH_MAX} levels deep`),
  objectOf({
    version: v.literal(RUN_VERSION, `${RUN_VERSION}`),
    model: TEXT,
    started: v.pipe(TEXT, v.check((date) => !isNaN(Date.parse(date)), "a date")),
    flags: VALUES,
    data: NAMED,
    schedule: NAMED,
    plan: PLAN,
    starts: arrayOf(objectOf(START), 0, LIST_MAX),
    end: v.optional(objectOf(END)),
  }),
);

/**
 * Reads the record of a run.
 *
 * @param isAnyVersion whether to accept other versions, without a check of their fields.
 * @returns undefined if there is none, or the file is not one of a run.
 * @throws {SyntaxError} when it has another version or a wrong field.
 */
export function readRecord(directory: string, isAnyVersion = false): RunRecord | undefined {
  const path = join(directory, RUN_FILES.record);
  let value: unknown;
  try {
    const { isFile, size } = Deno.lstatSync(path); // links are not followed
    if (!isFile || size > BYTES_MAX) return undefined;
    value = JSON.parse(Deno.readTextFileSync(path));
  } catch (error) {
    const { NotFound, NotADirectory } = Deno.errors;
    if ([SyntaxError, NotFound, NotADirectory].some((kind) => error instanceof kind)) {
      return undefined;
    }
    throw error;
  }
  if (!isObject(value) || value.format !== RUN_FORMAT) return undefined;
  if (!isAnyVersion) {
    checkData(`Cannot read ${inOneLine(path)}`, RECORD, value, { Kind: SyntaxError });
  }
  return value as unknown as RunRecord;
}

/** The folder of a run. */
export interface RunFolder {
  /** Path of the folder. */
  readonly path: string;
  /** Content of `run.json`; undefined for a run of Troupe 0.1, or of a script without `out`. */
  readonly record: RunRecord | undefined;
  /** Folders of its complete checkpoints, the newest first. */
  readonly checkpoints: readonly StepFolder[];
  /** True if the run is training. */
  readonly isRunning: boolean;
}

/**
 * Reads the folder of a run.
 *
 * @param named path of the folder or of one of its checkpoints, or a name below `runs/`.
 * @throws {RangeError} when there is no run.
 * @throws {SyntaxError} when its `run.json` is invalid or has another version.
 */
export async function readRun(named: string): Promise<RunFolder> {
  const found = runPath(named);
  const path = stepFolder(basename(found)) ? dirname(resolve(found)) : found;
  const names = await folderEntries(path).catch((cause: Error) => {
    throw noRun(named, `a folder, received ${cause.message}`, cause);
  });
  const checkpoints = checkpointsAmong(names), record = readRecord(path);
  if (names.includes(RUN_FILES.record) && !record) {
    const file = quoted(join(path, RUN_FILES.record)),
      must = "it must be written by a run of Troupe";
    throw refusal(`read ${file}`, must, "another file", SyntaxError);
  }
  if (!isRun(names)) {
    const isNothing = names.length === 0;
    const received = isNothing ? `no folder or an empty one${meantRun(named)}` : "other files";
    throw noRun(named, `a folder with run.json or checkpoints, received ${received}`);
  }
  return { path, record, checkpoints, isRunning: isInUse(path) };
}

/** Returns whether a folder with these names is the folder of a run. */
export const isRun = (names: readonly string[]): boolean =>
  names.includes(RUN_FILES.record) || checkpointsAmong(names).length > 0;

const checkpointsAmong = (names: readonly string[]) =>
  stepFolders(names).filter(({ kind }) => kind !== "unfinished");

const noRun = (named: string, must: string, cause?: unknown) =>
  new RangeError(`Cannot read the run ${quoted(named)}: it must be ${must}`, { cause });

/** Reads the configuration in the newest checkpoint, for a run without `run.json`. */
export function readConfig({ path, checkpoints }: RunFolder): Readonly<Record<string, unknown>> {
  const [newest] = checkpoints;
  if (!newest) return {};
  const file = join(path, newest.name, "config.json");
  return resultOr(() => {
    checkInputFile(file, CONFIG_BYTES_MAX["config.json"]);
    return parseRecord(file, Deno.readFileSync(file));
  }, {});
}

/** Summary of a run; unknown values are absent. */
export interface RunSummary {
  /** Name of the folder. */
  readonly name: string;
  readonly path: string;
  readonly state: "running" | "finished" | "stopped";
  readonly model?: string;
  /** Number of trained elements. */
  readonly parameters?: number;
  /** Steps taken. */
  readonly steps: number;
  /** Steps of the whole run. */
  readonly asked?: number;
  /** Loss of the last step, in nats per prediction; with jobs their mean. */
  readonly loss?: number;
  /** Lowest held-out loss. */
  readonly bestEvalLoss?: number;
  /** Median of the predictions per second. */
  readonly tokensPerSecond?: number;
  /** Start time in ISO 8601. */
  readonly started?: string;
}

/** Summarizes a run, by reading its metrics once. */
export function summarizeRun(run: RunFolder): RunSummary {
  const { path, record, checkpoints, isRunning } = run, config = record ? {} : readConfig(run);
  const { steps: asked } = (record?.flags ?? config.run ?? {}) as { steps?: unknown };
  const measured = measure(path);
  const steps = Math.max(measured.steps, record?.end?.step ?? 0, checkpoints[0]?.step ?? 0);
  // A run that stopped early is finished, too.
  const isFinished = record
    ? record.end !== undefined && record.end.reason !== "interrupted"
    : steps === asked;
  const model = record?.model ?? (config.flags as { model?: unknown } | undefined)?.model;
  const parameters = record?.plan.parameters;
  return {
    name: basename(resolve(path)),
    path,
    state: isRunning ? "running" : isFinished ? "finished" : "stopped",
    ...measured,
    steps,
    ...typeof model === "string" && { model },
    ...Number.isSafeInteger(parameters) && { parameters: parameters! },
    ...Number.isSafeInteger(asked) && { asked: asked as number },
    ...record && { started: record.started },
  };
}

/** Number of last steps whose speeds are kept. */
const SPEEDS_MAX = 1000;

function measure(path: string) {
  let steps = 0, count = 0, at: number | undefined, bestEvalLoss: number | undefined;
  let losses: number[] = [];
  const speeds: number[] = [];
  for (const { metrics } of readMetrics(path)) {
    const { type, step, evalLoss, tokensPerSecond } = metrics;
    steps = Math.max(steps, step);
    // A step has a record of each of its jobs.
    const isSame = metrics.job !== undefined && step === at;
    at = step;
    if (type === "step" && metrics.loss !== undefined) {
      losses = [...isSame ? losses : [], metrics.loss];
    }
    if (evalLoss !== undefined) bestEvalLoss = Math.min(bestEvalLoss ?? Infinity, evalLoss);
    if (tokensPerSecond === undefined) continue;
    if (!isSame) speeds[count++ % SPEEDS_MAX] = 0;
    speeds[(count - 1) % SPEEDS_MAX]! += tokensPerSecond;
  }
  const tokensPerSecond = speeds.sort((a, b) => a - b)[Math.floor(speeds.length / 2)];
  return {
    steps,
    ...losses.length > 0 && { loss: losses.reduce((sum, one) => sum + one) / losses.length },
    ...bestEvalLoss !== undefined && { bestEvalLoss },
    ...tokensPerSecond !== undefined && { tokensPerSecond },
  };
}

/** Parent of run folders, relative to the working directory. */
export const RUNS_FOLDER = "runs";

/** Limit of attempts, since other runs may take the next number. */
const TRIES_MAX = 1000;

/** Maximum length of the model's name in the name of a folder. */
const NAME_MAX = 60;

/**
 * Returns the path of a named run: as given, or below `runs/` if the run only exists there, even
 * beside another folder of that name, such as one of data.
 */
export function runPath(named: string): string {
  const below = join(RUNS_FOLDER, named);
  if (!/^[^./\\]/.test(named) || !existsSync(below)) return named;
  if (!existsSync(named)) return below;
  const isOther = !/[/\\]/.test(named) && lstat(named)!.isDirectory && !isRun(namesIn(named));
  return isOther && isRun(namesIn(below)) ? below : named;
}

/** Suggests a similar run for a missing one, as the end of a sentence. */
export function meantRun(named: string): string {
  if (existsSync(named)) return "";
  const { dir, base } = parse(named),
    isFolder = (name: string) => lstat(join(dir, name))!.isDirectory;
  const siblings = dir !== "" && existsSync(dir) ? namesIn(dir).filter(isFolder) : [];
  const near = suggest(base, siblings).replace(/\S+$/, (name) => join(dir, name));
  return near || suggest(base, namesIn(RUNS_FOLDER));
}

/**
 * Returns the path of the next run of a model, whose number is above all existing ones.
 *
 * @param model name of the model; other characters than letters, digits, `_` and `-` become `-`.
 */
export function nextRunFolder(model: string, parent: string = RUNS_FOLDER): string {
  const name = folderName(model), pattern = new RegExp(`^${RegExp.escape(name)}-([1-9]\\d{0,8})$`);
  const numbers = namesIn(parent).map((one) => Number(pattern.exec(one)?.[1] ?? 0));
  return join(parent, `${name}-${Math.max(0, ...numbers) + 1}`);
}

/**
 * Creates the folder of the next run of a model. Of two runs that start at the same time, one gets
 * the next number. Disposing of the result removes the folder if it is still empty.
 *
 * @throws {RangeError} when the folder cannot be created.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { basename } from "node:path";
 *
 * const parent = await Deno.makeTempDir();
 * {
 *   using first = makeRunFolder("gpt", parent);
 *   using second = makeRunFolder("gpt", parent);
 *   assert.deepEqual([first, second].map(({ path }) => basename(path)), ["gpt-1", "gpt-2"]);
 * }
 * assert.deepEqual([...Deno.readDirSync(parent)], [], "empty folders are removed");
 * await Deno.remove(parent);
 * ```
 */
export function makeRunFolder(
  model: string,
  parent: string = RUNS_FOLDER,
): Disposable & { readonly path: string } {
  try {
    const isNew = lstat(parent) === undefined, path = makeNext(model, parent);
    return {
      path,
      [Symbol.dispose]: () => [path, ...isNew ? [parent] : []].forEach(tryToRemove),
    };
  } catch (cause) {
    const must = `${parent} must be a writable folder, or --out must name another`;
    throw refusal("begin a run", must, cause);
  }
}

function makeNext(model: string, parent: string): string {
  const { AlreadyExists, NotFound } = Deno.errors;
  for (let tries = 1;; tries++) {
    try {
      // Another run that is refused removes it while it is empty.
      if (lstat(parent) === undefined) Deno.mkdirSync(parent, { recursive: true });
      const path = nextRunFolder(model, parent);
      Deno.mkdirSync(path);
      return path;
    } catch (error) {
      const isTaken = error instanceof AlreadyExists || error instanceof NotFound;
      if (!isTaken || tries === TRIES_MAX) throw error;
    }
  }
}

/** Names of models may be untrusted. */
const folderName = (model: string) =>
  model.replaceAll(/[^\w-]+/g, "-").slice(0, NAME_MAX).replace(/^-+/, "") || "run";

const namesIn = (folder: string): string[] =>
  unlessMissing(() => Array.from(Deno.readDirSync(folder), ({ name }) => name), []);

/**
 * Returns the path of the run to resume; a folder without a checkpoint starts one.
 *
 * @param out folder of the run that resumes it: if it is the named one, it need not exist yet.
 * @throws {RangeError} when there is none.
 */
export function runToResume(named: string, out?: string): string {
  const path = runPath(named),
    places = [named, join(RUNS_FOLDER, named)].map((one) => resolve(one));
  if (existsSync(path)) return path;
  if (out !== undefined && places.includes(resolve(out))) return out;
  const must = "it must be a run's folder, its name below runs/ or an empty folder";
  throw refusal(`resume from ${quoted(named)}`, must, `none${meantRun(named)}`);
}

/** Returns the folder of a run, given that folder or the folder of one of its checkpoints. */
export const runFolder = (path: string): string =>
  stepFolder(basename(path)) ? dirname(path) : path;

/**
 * Refuses to resume from an earlier checkpoint of a folder in the same folder, where the later ones
 * would remain among those of the run.
 *
 * @param named the folder of a run, or of one of its checkpoints.
 * @param out folder of the run that resumes it.
 * @throws {RangeError} naming the checkpoint.
 */
export async function refuseBranch(
  named: string,
  resume: { readonly step: number; readonly path?: string },
  out: string,
): Promise<void> {
  if (!stepFolder(basename(named)) || !goesOnIn(out, { resume })) return;
  const { step, kind } = stepFolders(await folderEntries(out))[0]!;
  if (step <= resume.step || kind === "unfinished") return;
  const remedy = "name another folder with --out, or remove the later ones with --overwrite";
  const must = "it must be the newest checkpoint of its folder";
  throw refusal(`resume from ${named}`, must, `one before step ${step}; ${remedy}`);
}
