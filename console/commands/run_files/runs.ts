/**
 * `troupe runs`: lists runs.
 *
 * @module
 */

import { join } from "node:path";
import { folderEntries } from "../../../actors/checkpoints/checkpoint_folders.ts";
import { commandLine } from "../../../actors/run/command_line.ts";
import { formatTable } from "../../../schedules/pictures/grid.ts";
import type { CommandContext } from "../../command.ts";
import { inOneLine } from "../../escape.ts";
import { answersItself } from "../../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../../flags/command_syntax.ts";
import { parseArguments } from "../../flags/parse.ts";
import { print, printError } from "../../print.ts";
import { terminalColumns } from "../../terminal/terminal.ts";
import { isRun, readRun } from "../../run_files/read_run.ts";
import { runPath, RUNS_FOLDER } from "../../run_files/run_folder.ts";
import { type RunSummary, summarizeRun } from "../../run_files/summarize_run.ts";

const FLAGS = {
  json: { kind: "switch", help: "one JSON object a line instead of a table" },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe runs`. */
export const RUNS_SYNTAX: CommandSyntax = {
  name: "runs",
  summary: "lists runs: what they train, how far they are, and how well",
  usage: ["[DIR] [flags]"],
  about: [`Lists the runs in a folder, ${RUNS_FOLDER} unless another is named.`],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 2 bad input."],
};

/** Runs `troupe runs`; returns the exit code. */
export async function runsCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  if (answersItself(args, RUNS_SYNTAX)) return 0;
  const { flags, words } = parseArguments(args, FLAGS, { takesWords: true });
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
  else if (summaries.length > 0) tableOf(summaries, terminalWidth()).forEach(print);
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
function tableOf(runs: readonly RunSummary[], width: number): string[] {
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
