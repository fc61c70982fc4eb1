/**
 * What differs between runs: how they were made, and what they came to.
 *
 * @module
 */

import { basename, dirname, join, resolve } from "node:path";
import {
  BYTES_MAX as CONFIG_BYTES_MAX,
  folderEntries,
  type StepFolder,
  stepFolder,
  stepFolders,
} from "../../actors/checkpoints/format.ts";
import { isInUse } from "../../actors/checkpoints/lock.ts";
import { parseRecord } from "../../actors/checkpoints/markers.ts";
import { COUNT_MAX, WORKERS_MAX } from "../../actors/options/limits.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { currentName } from "../flag.ts";
import { inOneLine, quoted } from "../terminal.ts";
import { TRAIN_FLAGS } from "../train/flags.ts";
import { readMetrics, RUN_FILES, RUN_FORMAT, RUN_VERSION, type RunRecord } from "./metrics_file.ts";
import { meantRun, runPath } from "./run_folder.ts";

/** The most bytes of such a file: a plan of some thousand stages. */
const BYTES_MAX = 2 ** 24;

type Values = Readonly<Record<string, unknown>>;

/**
 * The record of a run's folder.
 *
 * @param isAnyVersion whether another version will do, of which only that it is a run's is known.
 * @returns undefined where there is none, or what has its name is something else's.
 * @throws {SyntaxError} when it is of another version, or is not whole.
 */
export function readRecord(directory: string, isAnyVersion = false): RunRecord | undefined {
  const path = join(directory, RUN_FILES.record);
  let value: unknown;
  try {
    const { isFile, size } = Deno.lstatSync(path); // a link leads elsewhere
    if (!isFile || size > BYTES_MAX) return undefined;
    value = JSON.parse(Deno.readTextFileSync(path));
  } catch (error) {
    const { NotFound, NotADirectory } = Deno.errors;
    if ([SyntaxError, NotFound, NotADirectory].some((kind) => error instanceof kind)) {
      return undefined;
    }
    throw error;
  }
  if (!isValues(value) || value.format !== RUN_FORMAT) return undefined;
  if (isAnyVersion) return value as unknown as RunRecord;
  const wrong = problemOf(value);
  if (wrong === undefined) return value as unknown as RunRecord;
  const [must, received] = wrong;
  throw new SyntaxError(
    `Cannot read ${inOneLine(path)}: its ${must}, received ${quoted(received)}`,
  );
}

const isValues = (value: unknown): value is Values =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** What is not as it must be, and what it is. */
type Problem = readonly [must: string, received: unknown];

/** What is wrong with a value that has a name. */
type Check = (value: unknown, name: string) => Problem | undefined;

/** Characters of a text, entries of a list, and values within values: more than any run has. */
const TEXT_MAX = 2 ** 16, LIST_MAX = 2 ** 16, DEPTH_MAX = 32;

/** Stages of a plan: sixteen on each worker. */
const STAGES_MAX = 16 * WORKERS_MAX;

const check = (must: string, is: (value: unknown) => boolean): Check => (value, name) =>
  is(value) ? undefined : [`${name} must be ${must}`, value];

const wholeNumber = (least: number, most: number) =>
  check(
    `a whole number from ${least} to ${most}`,
    (value) => Number.isSafeInteger(value) && least <= Number(value) && Number(value) <= most,
  );

const recordOf = (fields: Readonly<Record<string, Check>>): Check => (value, name) =>
  isValues(value)
    ? firstOf(Object.entries(fields), ([field, check]) => check(value[field], `${name}.${field}`))
    : [`${name} must be a record`, value];

const listOf = (most: number, check: Check, least = 0): Check => (value, name) =>
  Array.isArray(value) && least <= value.length && value.length <= most
    ? firstOf(value, (one, i) => check(one, `${name}[${i}]`))
    : [`${name} must be a list of ${least} to ${most} entries`, value];

const ifThere = (check: Check): Check => (value, name) =>
  value === undefined ? undefined : check(value, name);

function firstOf<T>(all: readonly T[], problemOf: (one: T, i: number) => Problem | undefined) {
  return all.values().map(problemOf).find((problem) => problem !== undefined);
}

/** Whether values are within values at most so deep: what is shown of them is written recursively. */
const isShallow = (value: unknown, deep = DEPTH_MAX): boolean =>
  typeof value !== "object" || value === null ||
  deep > 0 && Object.values(value).every((one) => isShallow(one, deep - 1));

const TEXT = check(
  `a text of at most ${TEXT_MAX} characters`,
  (value) => typeof value === "string" && value.length <= TEXT_MAX,
);
const ENDS: readonly unknown[] = ["finished", "stopped early", "interrupted"];
const RECORD = recordOf({}), NUMBER = check("a number", Number.isFinite);
const COUNT = wholeNumber(0, COUNT_MAX), TEXTS = listOf(LIST_MAX, TEXT);
const NAMED = recordOf({ name: TEXT, hash: ifThere(TEXT) });
const STAGE = {
  ...{
    stage: wholeNumber(0, STAGES_MAX - 1),
    layers: TEXTS,
    parameters: NUMBER,
    costShare: NUMBER,
  },
  workers: listOf(WORKERS_MAX, wholeNumber(0, WORKERS_MAX - 1)),
};
const PLAN = {
  ...{ schedule: TEXT, runtime: TEXT, parameters: NUMBER, replicas: wholeNumber(1, WORKERS_MAX) },
  stages: listOf(STAGES_MAX, recordOf(STAGE), 1),
};
const START = { afterStep: COUNT, from: ifThere(TEXT), command: TEXTS, environment: RECORD };

/** All that is read of a record. */
const CHECKS: Readonly<Record<string, Check>> = {
  version: check(String(RUN_VERSION), (value) => value === RUN_VERSION),
  model: TEXT,
  started: check("a date", (value) => typeof value === "string" && !isNaN(Date.parse(value))),
  ...{ flags: RECORD, data: NAMED, schedule: NAMED, plan: recordOf(PLAN) },
  starts: listOf(LIST_MAX, recordOf(START)),
  end: ifThere(
    recordOf({ reason: check(ENDS.join(" or "), (value) => ENDS.includes(value)), step: COUNT }),
  ),
};

function problemOf(record: Values): Problem | undefined {
  if (!isShallow(record)) return [`values must be at most ${DEPTH_MAX} deep`, "deeper ones"];
  return firstOf(Object.entries(CHECKS), ([name, check]) => check(record[name], name));
}

/** The folder of a run. */
export interface RunFolder {
  /** Where it is. */
  readonly path: string;
  /** What `run.json` says; undefined for a run of Troupe 0.1, and for one of a script. */
  readonly record: RunRecord | undefined;
  /** The folders of its checkpoints, the newest first; what is unfinished is none. */
  readonly checkpoints: readonly StepFolder[];
  /** Whether it trains just now. */
  readonly isRunning: boolean;
}

/**
 * Reads the folder of a run.
 *
 * @param named its path, that of one of its checkpoints, or its name below `runs/`.
 * @throws {RangeError} when there is no run.
 * @throws {SyntaxError} when its `run.json` is of another version, or of something else.
 */
export async function readRun(named: string): Promise<RunFolder> {
  const found = runPath(named);
  const path = stepFolder(basename(found)) ? dirname(resolve(found)) : found;
  const names = await folderEntries(path).catch((cause: Error) => {
    throw noRun(named, `a folder, received ${cause.message}`, cause);
  });
  const checkpoints = checkpointsAmong(names), record = readRecord(path);
  if (names.includes(RUN_FILES.record) && !record) {
    throw new SyntaxError(
      `Cannot read ${
        quoted(join(path, RUN_FILES.record))
      }: it must be a file that a run of Troupe has written, received something else`,
    );
  }
  if (!isRun(names)) {
    throw noRun(
      named,
      `a folder with run.json or checkpoints, received ${
        names.length === 0 ? `none, or an empty one${meantRun(named)}` : "one without"
      }`,
    );
  }
  return { path, record, checkpoints, isRunning: isInUse(path) };
}

/** Whether these names are in the folder of a run. */
export const isRun = (names: readonly string[]): boolean =>
  names.includes(RUN_FILES.record) || checkpointsAmong(names).length > 0;

const checkpointsAmong = (names: readonly string[]) =>
  stepFolders(names).filter(({ kind }) => kind !== "unfinished");

const noRun = (named: string, must: string, cause?: unknown) =>
  new RangeError(`Cannot read the run ${quoted(named)}: it must be ${must}`, { cause });

/**
 * What the newest checkpoint says of its run, for one without `run.json`; undefined where it is not
 * whole.
 */
function readConfig({ path, checkpoints }: RunFolder): Readonly<Record<string, unknown>> {
  const [newest] = checkpoints;
  if (!newest) return {};
  const file = join(path, newest.name, "config.json");
  try {
    checkInputFile(file, CONFIG_BYTES_MAX["config.json"]);
    return parseRecord(file, Deno.readFileSync(file));
  } catch {
    return {};
  }
}

/** A run in a few numbers; what nobody has noted is absent. */
export interface RunSummary {
  /** The name of its folder. */
  readonly name: string;
  readonly path: string;
  readonly state: "running" | "finished" | "stopped";
  readonly model?: string;
  /** Trained numbers. */
  readonly parameters?: number;
  /** Steps that were taken. */
  readonly steps: number;
  /** Steps of the whole run. */
  readonly asked?: number;
  /** Of the last step, in nats a prediction. */
  readonly loss?: number;
  /** The lowest held-out loss. */
  readonly bestEvalLoss?: number;
  /** Predictions a second in the middle of all steps: half were faster. */
  readonly tokensPerSecond?: number;
  /** When it was begun, as ISO 8601 has it. */
  readonly started?: string;
}

/** Summarizes a run: all it has measured is read once. */
export function summarizeRun(run: RunFolder): RunSummary {
  const { path, record, checkpoints, isRunning } = run, config = record ? {} : readConfig(run);
  const { steps: asked } = (record?.flags ?? config.run ?? {}) as { steps?: unknown };
  const measured = measure(path);
  const steps = Math.max(measured.steps, record?.end?.step ?? 0, checkpoints[0]?.step ?? 0);
  // What ran out of patience has come to its end, too.
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

/** Speeds of the last steps that are kept. */
const SPEEDS_MAX = 1000;

function measure(path: string) {
  let steps = 0, count = 0, loss: number | undefined, bestEvalLoss: number | undefined;
  const speeds: number[] = [];
  for (const { metrics } of readMetrics(path)) {
    const { type, step, evalLoss, tokensPerSecond } = metrics;
    steps = Math.max(steps, step);
    if (type === "step") loss = metrics.loss ?? loss;
    if (evalLoss !== undefined) bestEvalLoss = Math.min(bestEvalLoss ?? Infinity, evalLoss);
    if (tokensPerSecond !== undefined) speeds[count++ % SPEEDS_MAX] = tokensPerSecond;
  }
  const tokensPerSecond = speeds.sort((a, b) => a - b)[Math.floor(speeds.length / 2)];
  return {
    steps,
    ...loss !== undefined && { loss },
    ...bestEvalLoss !== undefined && { bestEvalLoss },
    ...tokensPerSecond !== undefined && { tokensPerSecond },
  };
}

/** A row of a table: what it is about, and what each run says of it. */
type Row = readonly [name: string, ...values: string[]];

/** Rows that are shown, and characters of a value: a stranger's run may have many. */
const ROWS_MAX = 200, VALUE_MAX = 40;

/** Flags that say where a run is, and not what it is. */
const PLACES = ["out", "resume", "overwrite", "journal", "trace", "config"];

/** What differs in the configuration of runs: flags, environment, plan, hashes. */
export function configurationDifferences(runs: readonly RunFolder[]): Row[] {
  const facts = runs.map(factsOf), names = new Set(facts.flatMap((one) => [...one.keys()]));
  return [...names].map((name): Row => [name, ...facts.map((one) => one.get(name) ?? "–")])
    .filter(([, first, ...others]) => others.some((other) => other !== first))
    .slice(0, ROWS_MAX);
}

/** What runs came to. */
export function outcomes(runs: readonly RunFolder[]): Row[] {
  const all = runs.map(summarizeRun);
  const row = (name: string, read: (one: typeof all[number]) => unknown): Row => [
    name,
    ...all.map((one) => shown(read(one))),
  ];
  const fixed = (value: number | undefined, digits: number) => value?.toFixed(digits);
  return [
    row("state", ({ state }) => state),
    row("parameters", ({ parameters }) => parameters?.toLocaleString("en-US")),
    row("steps", ({ steps, asked }) => asked === undefined ? steps : `${steps}/${asked}`),
    row("loss", ({ loss }) => fixed(loss, 4)),
    row("best held-out loss", ({ bestEvalLoss }) => fixed(bestEvalLoss, 4)),
    row("tokens/s", ({ tokensPerSecond }) => fixed(tokensPerSecond, 0)),
  ];
}

/** What is known of how a run was made, by name. */
function factsOf(run: RunFolder): ReadonlyMap<string, string> {
  const { record } = run;
  if (!record) {
    const { flags, run: others } = readConfig(run);
    return new Map(flat("", { ...asRecord(flags), ...asRecord(others) }));
  }
  const { flags, data, schedule, starts } = record;
  const own = Object.fromEntries(
    Object.entries(flags).filter(([name]) => !PLACES.includes(name)),
  );
  return new Map([
    ...flat("", own),
    ...flat("data ", data),
    ...flat("schedule ", schedule),
    ...flat("", asRecord(starts.at(-1)?.environment)),
  ]);
}

const asRecord = (value: unknown): object =>
  typeof value === "object" && value !== null ? value : {};

const flat = (prefix: string, values: object): [string, string][] =>
  Object.entries(values).map(([name, value]) => [
    inOneLine(prefix + currentName(name, TRAIN_FLAGS)),
    shown(value),
  ]);

function shown(value: unknown): string {
  const text = inOneLine(typeof value === "string" ? value : JSON.stringify(value) ?? "–");
  return text.length > VALUE_MAX ? `${text.slice(0, VALUE_MAX - 1)}…` : text;
}
