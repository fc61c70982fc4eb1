/**
 * What differs between runs: how they were made, and what they came to.
 *
 * @module
 */

import { inOneLine } from "../escape.ts";
import { currentName } from "../flags/flag.ts";
import { TRAIN_FLAGS } from "../train/train_flags.ts";
import { readConfig, type RunFolder } from "./read_run.ts";
import { summarizeRun } from "./summarize_run.ts";

/** A row of a table: what it is about, and what each run says of it. */
export type Row = readonly [name: string, ...values: string[]];

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
    return new Map(flat("", { ...recordOf(flags), ...recordOf(others) }));
  }
  const { flags, data, schedule, starts } = record;
  const own = Object.fromEntries(
    Object.entries(flags).filter(([name]) => !PLACES.includes(name)),
  );
  return new Map([
    ...flat("", own),
    ...flat("data ", data),
    ...flat("schedule ", schedule),
    ...flat("", recordOf(starts.at(-1)?.environment)),
  ]);
}

const recordOf = (value: unknown): object =>
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
