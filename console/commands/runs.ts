/**
 * `troupe runs`, `troupe compare` and `troupe plot`: list runs, compare them and draw their losses.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { folderEntries } from "../../actors/checkpoints/format.ts";
import { isObject } from "../../actors/options/file_schema.ts";
import { commandLine } from "../../actors/options/limits.ts";
import {
  isRun,
  readConfig,
  readRun,
  type RunFolder,
  runPath,
  RUNS_FOLDER,
  type RunSummary,
  summarizeRun,
} from "../../actors/run_folder/read.ts";
import { refusal } from "../../kernels/internal.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { currentName } from "../flag.ts";
import { CHART_FLAGS, checkPicture, readCurves, showLosses } from "../run_files/losses.ts";
import { ensure, inOneLine, print, printError, terminalColumns } from "../terminal.ts";
import { TRAIN_FLAGS } from "../train/flags.ts";
import { checkCount, type Command, defineCommand } from "./common.ts";

/** Maximum number of runs that a chart can distinguish. */
const RUNS_MAX = 6;

/** `troupe compare`. */
export const compareCommand: Command = defineCommand({
  name: "compare",
  summary: "shows the differences of runs, and draws their losses",
  usage: ["RUN RUN … [flags]"],
  about: [
    "Shows the results of runs, the differences of their options, and their losses in one chart.",
    "",
    "RUN is the folder of a run, or its name below runs/.",
  ],
  flags: CHART_FLAGS,
  notes: ["Exit codes: 0 done; 1 it failed; 2 bad input."],
  run: async ({ flags, words }, { begin }) => {
    checkCount("compare", "runs", words.length, [2, RUNS_MAX]);
    checkPicture(flags.out);
    const runs = [], curves = [];
    for (const word of words) {
      const run = await readRun(word);
      runs.push(run);
      curves.push(...readCurves(run, flags.metric));
    }
    begin();
    tableOf(runs).forEach(print);
    showLosses(curves, flags.out);
  },
});

/** Returns the outcomes of runs, and their configurations where they differ. */
function tableOf(runs: readonly RunFolder[]): string[] {
  const differences = configurationDifferences(runs), came = outcomes(runs);
  const head = ["", ...runs.map(({ path }) => inOneLine(basename(resolve(path))))];
  const lines = formatTable([head, ...came, ...differences], { left: head.map((_, i) => i) });
  const title = differences.length > 0
    ? "What differs in how they were made:"
    : "They were made in the same way.";
  return [...lines.slice(0, 1 + came.length), "", title, ...lines.slice(1 + came.length), ""];
}

/** `troupe plot`. */
export const plotCommand: Command = defineCommand({
  name: "plot",
  summary: "draws the loss and the held-out loss of a run",
  usage: ["RUN [flags]"],
  about: [
    "Draws the loss and the held-out loss of a run, or one of its metrics.",
    "",
    "RUN is the folder of a run, or its name below runs/.",
  ],
  flags: CHART_FLAGS,
  notes: ["Exit codes: 0 done; 1 it failed; 2 bad input."],
  run: async ({ flags, words }, { begin }) => {
    const count = words.length;
    ensure(count === 1, "plot", "one run must be named", count);
    checkPicture(flags.out);
    const curves = readCurves(await readRun(words[0]!), flags.metric);
    begin();
    showLosses(curves, flags.out);
  },
});

/** `troupe runs`. */
export const runsCommand: Command = defineCommand({
  name: "runs",
  summary: "lists runs with their models, steps and losses",
  usage: ["[DIR] [flags]"],
  about: [`Lists the runs in a folder, by default ${RUNS_FOLDER}.`],
  flags: { json: { kind: "switch", help: "print one JSON object per line" } },
  notes: ["Exit codes: 0 done; 2 bad input."],
  run: async ({ flags, words }, { begin }) => {
    const [folder = RUNS_FOLDER] = words, received = words.map(inOneLine).join(" ");
    ensure(words.length < 2, "list runs", "one folder may be named", received);
    const path = runPath(folder), isThere = words.length === 0 || existsSync(path);
    ensure(isThere, "list runs", `${inOneLine(folder)} must be a folder`);
    const paths = await runsIn(path);
    begin();
    const summaries: RunSummary[] = [];
    for (const path of paths) {
      try {
        summaries.push(summarizeRun(await readRun(path)));
      } catch (error) {
        printError((error as Error).message);
      }
    }
    const width = Deno.stdout.isTerminal() ? terminalColumns() : Infinity;
    if (flags.json) summaries.forEach((one) => print(JSON.stringify(one)));
    else if (summaries.length > 0) runsTable(summaries, width).forEach(print);
    else print(`No runs in ${folder}; begin one with: ${commandLine("train")}`);
  },
});

/** Returns the run folders in a folder, sorted by name; or the folder itself, if it is a run. */
async function runsIn(folder: string): Promise<string[]> {
  const names = await folderEntries(folder).catch((cause: Error) => {
    throw refusal("list runs", `${inOneLine(folder)} must be a folder`, cause);
  });
  if (isRun(names)) return [folder];
  const order = new Intl.Collator("en", { numeric: true }), runs: string[] = [];
  for (const name of names.sort(order.compare)) {
    const path = join(folder, name);
    if (isRun(await folderEntries(path).catch(() => []))) runs.push(path);
  }
  return runs;
}

const NONE = "–";

const fixed = (value: number | undefined, digits: number) => value?.toFixed(digits) ?? NONE;

/** Formats the time of a start, which comes from a file. */
const startText = ({ started }: RunSummary) =>
  inOneLine(started?.slice(0, 16).replace("T", " ") ?? NONE);

/** The columns of a run, the most important first: a narrow terminal omits the last ones. */
const COLUMNS:
  readonly (readonly [title: string, isText: boolean, of: (run: RunSummary) => string])[] = [
    ["run", true, ({ name }) => inOneLine(name)],
    ["state", true, ({ state }) => state],
    ["steps", false, ({ steps, asked }) => asked === undefined ? `${steps}` : `${steps}/${asked}`],
    ["loss", false, ({ loss }) => fixed(loss, 3)],
    ["best held-out", false, ({ bestEvalLoss }) => fixed(bestEvalLoss, 3)],
    ["tokens/s", false, ({ tokensPerSecond }) => fixed(tokensPerSecond, 0)],
    ["model", true, ({ model }) => inOneLine(model?.slice(0, 40) ?? NONE)],
    ["parameters", false, ({ parameters }) => parameters?.toLocaleString("en-US") ?? NONE],
    ["started (UTC)", true, startText],
  ];

/** Returns a table of the columns that fit; the first three are always shown. */
function runsTable(runs: readonly RunSummary[], width: number): string[] {
  for (let count = COLUMNS.length;; count--) {
    const shown = COLUMNS.slice(0, count);
    const titles = shown.map(([title]) => title);
    const left = shown.flatMap(([, isText], nth) => isText ? [nth] : []);
    const lines = formatTable([titles, ...runs.map((run) => shown.map(([, , of]) => of(run)))], {
      left,
    });
    if (count === 3 || lines.every(({ length }) => length <= width)) return lines;
  }
}

/** A row of a table: a name and the value of each run. */
type Row = readonly [name: string, ...values: string[]];

/** Limits of rows and of characters of a value, as files may be of any size. */
const ROWS_MAX = 200, VALUE_MAX = 40;

/** Flags of places, which do not define a run. */
const PLACES = ["out", "resume", "overwrite", "journal", "trace", "config"];

/** Returns the differences between runs in flags, data, schedule and environment. */
function configurationDifferences(runs: readonly RunFolder[]): Row[] {
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
