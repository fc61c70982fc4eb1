/**
 * `troupe runs`: lists runs.
 *
 * @module
 */

import { basename, join, resolve } from "node:path";
import { folderEntries } from "../../actors/checkpoints/format.ts";
import { commandLine } from "../../actors/options/limits.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { CommandContext } from "../command.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flag.ts";
import { answersItself, parseArguments } from "../parse.ts";
import { CHART_FLAGS, readCurves, showLosses } from "../run_files/losses.ts";
import {
  configurationDifferences,
  isRun,
  outcomes,
  readRun,
  type RunFolder,
  type RunSummary,
  summarizeRun,
} from "../run_files/read.ts";
import { runPath, RUNS_FOLDER } from "../run_files/run_folder.ts";
import { inOneLine, print, printError, terminalColumns } from "../terminal.ts";

const FLAGS = { ...CHART_FLAGS, ...COMMON_FLAGS } as const;

/** Runs that are told apart in a picture. */
const RUNS_MAX = 6;

/** The declaration of `troupe compare`. */
export const COMPARE_SYNTAX: CommandSyntax = {
  name: "compare",
  summary: "shows what differs between runs, and draws their losses",
  usage: ["RUN RUN … [flags]"],
  about: [
    "Shows what differs in how runs were made, what they came to, and their losses in one chart.",
    "",
    "RUN is the folder of a run, or its name below runs/.",
  ],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 1 it failed; 2 bad input."],
};

/** Runs `troupe compare`; returns the exit code. */
export async function compareCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  if (answersItself(args, COMPARE_SYNTAX)) return 0;
  const { flags, words } = parseArguments(args, FLAGS, { takesWords: true });
  if (words.length < 2 || words.length > RUNS_MAX) {
    throw new TypeError(
      `Cannot compare: the number of runs must be from 2 to ${RUNS_MAX}, received ${words.length}`,
    );
  }
  const runs = [], curves = [];
  for (const word of words) {
    const run = await readRun(word);
    runs.push(run);
    curves.push(readCurves(run));
  }
  begin();
  tableOf(runs).forEach(print);
  await showLosses(curves, flags.out);
  return 0;
}

function tableOf(runs: readonly RunFolder[]): string[] {
  const differences = configurationDifferences(runs), came = outcomes(runs);
  const head = ["", ...runs.map(({ path }) => inOneLine(basename(resolve(path))))];
  const left = { left: head.map((_, i) => i) };
  const lines = formatTable([head, ...came, ...differences], left);
  const made = differences.length > 0 ? "What differs in how they were made:" : undefined;
  return [
    ...lines.slice(0, 1 + came.length),
    "",
    made ?? "They were made in the same way.",
    ...lines.slice(1 + came.length),
    "",
  ];
}

/** The declaration of `troupe plot`. */
export const PLOT_SYNTAX: CommandSyntax = {
  name: "plot",
  summary: "draws the loss of a run, and its held-out loss",
  usage: ["RUN [flags]"],
  about: ["RUN is the folder of a run, or its name below runs/."],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 1 it failed; 2 bad input."],
};

/** Runs `troupe plot`; returns the exit code. */
export async function plotCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  if (answersItself(args, PLOT_SYNTAX)) return 0;
  const { flags, words } = parseArguments(args, FLAGS, { takesWords: true });
  if (words.length !== 1) {
    throw new TypeError(`Cannot plot: one run must be named, received ${words.length}`);
  }
  const curves = readCurves(await readRun(words[0]!));
  begin();
  await showLosses([curves], flags.out);
  return 0;
}

const RUNS_FLAGS = {
  json: { kind: "switch", help: "one JSON object a line instead of a table" },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe runs`. */
export const RUNS_SYNTAX: CommandSyntax = {
  name: "runs",
  summary: "lists runs: what they train, how far they are, and how well",
  usage: ["[DIR] [flags]"],
  about: [`Lists the runs in a folder, ${RUNS_FOLDER} unless another is named.`],
  groups: [{ flags: RUNS_FLAGS }],
  notes: ["Exit codes: 0 done; 2 bad input."],
};

/** Runs `troupe runs`; returns the exit code. */
export async function runsCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  if (answersItself(args, RUNS_SYNTAX)) return 0;
  const { flags, words } = parseArguments(args, RUNS_FLAGS, { takesWords: true });
  const [folder = RUNS_FOLDER] = words;
  if (words.length > 1) {
    throw new TypeError(
      `Cannot list runs: one folder may be named, received ${words.map(inOneLine).join(" ")}`,
    );
  }
  const paths = await runsIn(runPath(folder));
  begin();
  const summaries: RunSummary[] = [];
  for (const path of paths) {
    try {
      summaries.push(summarizeRun(await readRun(path)));
    } catch (error) {
      printError((error as Error).message);
    }
  }
  if (flags.json) summaries.forEach((one) => print(JSON.stringify(one)));
  else if (summaries.length > 0) runsTable(summaries, terminalWidth()).forEach(print);
  else print(`No runs in ${folder}; begin one with: ${commandLine("train")}`);
  return 0;
}

const terminalWidth = () => Deno.stdout.isTerminal() ? terminalColumns() : Infinity;

/** The folders of runs in a folder, by their names, numbers as such; or the folder, if it is one. */
async function runsIn(folder: string): Promise<string[]> {
  const names = await folderEntries(folder).catch((cause: Error) => {
    throw new RangeError(
      `Cannot list runs: ${inOneLine(folder)} must be a folder, received ${cause.message}`,
      { cause },
    );
  });
  if (isRun(names)) return [folder];
  const order = new Intl.Collator("en", { numeric: true }), runs: string[] = [];
  for (const name of names.sort(order.compare)) {
    const path = join(folder, name);
    if (isRun(await folderEntries(path).catch(() => []))) runs.push(path);
  }
  return runs;
}

/** What is told of a run: those that matter most first, as a narrow terminal shows no others. */
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
    [
      "started (UTC)",
      true,
      ({ started }) => inOneLine(started?.slice(0, 16).replace("T", " ") ?? NONE),
    ],
  ];

const NONE = "–";

const fixed = (value: number | undefined, digits: number) => value?.toFixed(digits) ?? NONE;

/** A table of so many columns as fit; the first three are always there. */
function runsTable(runs: readonly RunSummary[], width: number): string[] {
  for (let count = COLUMNS.length;; count--) {
    const shown = COLUMNS.slice(0, count);
    const rows = [
      shown.map(([title]) => title),
      ...runs.map((run) => shown.map(([, , of]) => of(run))),
    ];
    const left = shown.flatMap(([, isText], nth) => isText ? [nth] : []);
    const lines = formatTable(rows, { left });
    if (count === 3 || lines.every(({ length }) => length <= width)) return lines;
  }
}
