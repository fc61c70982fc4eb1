/**
 * Reads `run.json`, which may be a stranger's: all of it that others read has its type and its bounds.
 *
 * @module
 */

import { join } from "node:path";
import { COUNT_MAX, WORKERS_MAX } from "../../actors/run/options/sizes.ts";
import { inOneLine, quoted } from "../escape.ts";
import { RUN_FILES, RUN_FORMAT, RUN_VERSION, type RunRecord } from "./run_record.ts";

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
