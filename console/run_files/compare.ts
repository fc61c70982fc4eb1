/**
 * Compares runs: their configurations and results.
 *
 * @module
 */

import { isObject } from "../../actors/options/file_schema.ts";
import { readConfig, type RunFolder, summarizeRun } from "../../actors/run_folder/read.ts";
import { currentName } from "../flag.ts";
import { inOneLine } from "../terminal.ts";
import { TRAIN_FLAGS } from "../train/flags.ts";

/** A row of a table: a name and the value of each run. */
type Row = readonly [name: string, ...values: string[]];

/** Limits of rows and of characters of a value, as files may be of any size. */
const ROWS_MAX = 200, VALUE_MAX = 40;

/** Flags of places, which do not define a run. */
const PLACES = ["out", "resume", "overwrite", "journal", "trace", "config"];

/** Returns the differences between runs in flags, data, schedule and environment. */
export function configurationDifferences(runs: readonly RunFolder[]): Row[] {
  const facts = runs.map(factsOf), names = new Set(facts.flatMap((one) => [...one.keys()]));
  return [...names].map((name): Row => [name, ...facts.map((one) => one.get(name) ?? "–")])
    .filter(([, first, ...others]) => others.some((other) => other !== first))
    .slice(0, ROWS_MAX);
}

/** Returns the results of runs. */
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

/** Returns the configuration of a run by name. */
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

const asRecord = (value: unknown): object => isObject(value) ? value : {};

const flat = (prefix: string, values: object): [string, string][] =>
  Object.entries(values).map(([name, value]) => [
    inOneLine(prefix + currentName(name, TRAIN_FLAGS)),
    shown(value),
  ]);

function shown(value: unknown): string {
  const text = inOneLine(typeof value === "string" ? value : JSON.stringify(value) ?? "–");
  return text.length > VALUE_MAX ? `${text.slice(0, VALUE_MAX - 1)}…` : text;
}
