/**
 * `troupe runs`: lists runs.
 *
 * @module
 */

import { join } from "node:path";
import { folderEntries } from "../../../actors/checkpoints/checkpoint_folders.ts";
import { commandLine } from "../../../actors/run/command_line.ts";
import { formatTable } from "../../../schedules/pictures/table.ts";
import type { CommandContext } from "../../command.ts";
import { inOneLine } from "../../escape.ts";
import { answersItself } from "../../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../../flags/command_syntax.ts";
import { parseArguments } from "../../flags/parse.ts";
import { print, printError } from "../../print.ts";
import { isRun, readRun } from "../../run_files/read_run.ts";
import { RUNS_FOLDER } from "../../run_files/run_folder.ts";
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
  const paths = await runsIn(folder);
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
  else if (summaries.length > 0) formatTable([HEAD, ...summaries.map(rowOf)], LEFT).forEach(print);
  else print(`No runs in ${folder}; begin one with: ${commandLine("train")}`);
  return 0;
}

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

const HEAD = [
  ...["run", "state", "model", "parameters", "steps", "loss", "best held-out", "tokens/s"],
  "started",
];

/** Words stand to the left, numbers to the right. */
const LEFT = { left: [0, 1, 2, 8] };

function rowOf(run: RunSummary): string[] {
  const { name, state, model, parameters, steps, asked, started } = run;
  const number = (value: number | undefined, digits: number) =>
    value === undefined ? "–" : value.toFixed(digits);
  return [
    inOneLine(name),
    state,
    inOneLine(model?.slice(0, 40) ?? "–"),
    parameters?.toLocaleString("en-US") ?? "–",
    asked === undefined ? `${steps}` : `${steps}/${asked}`,
    number(run.loss, 3),
    number(run.bestEvalLoss, 3),
    number(run.tokensPerSecond, 0),
    started === undefined ? "–" : inOneLine(started.slice(0, 16).replace("T", " ")),
  ];
}
