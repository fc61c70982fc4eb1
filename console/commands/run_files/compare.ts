/**
 * `troupe compare`: runs beside each other.
 *
 * @module
 */

import { basename, resolve } from "node:path";
import { formatTable } from "../../../schedules/pictures/grid.ts";
import type { CommandContext } from "../../command.ts";
import { inOneLine } from "../../escape.ts";
import { answersItself } from "../../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../../flags/command_syntax.ts";
import { parseArguments } from "../../flags/parse.ts";
import { print } from "../../print.ts";
import { readCurves } from "../../run_files/charts/loss_curves.ts";
import { CHART_FLAGS, showLosses } from "../../run_files/charts/show_losses.ts";
import { configurationDifferences, outcomes } from "../../run_files/differences.ts";
import { readRun, type RunFolder } from "../../run_files/read_run.ts";

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
