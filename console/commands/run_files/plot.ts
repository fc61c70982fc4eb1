/**
 * `troupe plot`: draws the losses of a run.
 *
 * @module
 */

import type { CommandContext } from "../../command.ts";
import { answersItself } from "../../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../../flags/command_syntax.ts";
import { parseArguments } from "../../flags/parse.ts";
import { readCurves } from "../../run_files/charts/loss_curves.ts";
import { CHART_FLAGS, showLosses } from "../../run_files/charts/show_losses.ts";
import { readRun } from "../../run_files/read_run.ts";

const FLAGS = { ...CHART_FLAGS, ...COMMON_FLAGS } as const;

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
