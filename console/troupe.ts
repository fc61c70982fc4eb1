/**
 * The `troupe` command: which commands there are.
 *
 * @module
 */

import { commandLine } from "../actors/run/command_line.ts";
import { didYouMean } from "../actors/run/options/did_you_mean.ts";
import { formatTable } from "../schedules/pictures/grid.ts";
import type { CommandContext } from "./command.ts";
import { ACTORS_SYNTAX } from "./actors/actors_syntax.ts";
import { actorsCommand } from "./commands/actors.ts";
import { COMPLETION_SYNTAX, completionCommand } from "./commands/completion.ts";
import { DASHBOARD_SYNTAX, dashboardCommand } from "./commands/dashboard.ts";
import { DEVICES_SYNTAX, devicesCommand } from "./commands/devices.ts";
import { EXPORT_SYNTAX, exportCommand } from "./commands/export.ts";
import { EXPLORE_SYNTAX, exploreCommand } from "./commands/explore.ts";
import { GENERATE_SYNTAX, generateCommand } from "./commands/generate.ts";
import { JOURNAL_SYNTAX, journalCommand } from "./commands/journal.ts";
import { REPLAY_SYNTAX, replayCommand } from "./commands/replay.ts";
import { launchCommand } from "./commands/launch.ts";
import { planCommand } from "./commands/plan.ts";
import { COMPARE_SYNTAX, compareCommand } from "./commands/run_files/compare.ts";
import { PLOT_SYNTAX, plotCommand } from "./commands/run_files/plot.ts";
import { RUNS_SYNTAX, runsCommand } from "./commands/run_files/runs.ts";
import { profileCommand } from "./commands/profile.ts";
import { printSchedule } from "./commands/schedule.ts";
import { TRACE_SYNTAX, traceCommand } from "./commands/trace.ts";
import { TRAIN_MODULE, trainCommand } from "./commands/train.ts";
import { inOneLine } from "./escape.ts";
import type { CommandSyntax } from "./flags/command_syntax.ts";
import { VERSION } from "./flags/version.ts";
import { PROFILE_SYNTAX } from "./foresight/profile_flags.ts";
import { PLAN_SYNTAX } from "./foresight/plan_flags.ts";
import { LAUNCH_SYNTAX } from "./launch/launch_flags.ts";
import { print } from "./print.ts";
import { SCHEDULE_SYNTAX } from "./schedule/schedule_command_flags.ts";
import { explainSystemError } from "./system_errors.ts";
import { TRAIN_SYNTAX } from "./train/train_flags.ts";

/** A command: what it is told, and what it does; it returns its exit code. */
interface Command {
  readonly syntax: CommandSyntax;
  readonly run: (args: readonly string[], context: CommandContext) => Promise<number>;
}

const TRAIN = { run: trainCommand, module: TRAIN_MODULE };

const COMMANDS: readonly Command[] = [
  { syntax: TRAIN_SYNTAX, run: trainCommand },
  { syntax: LAUNCH_SYNTAX, run: launchCommand },
  { syntax: GENERATE_SYNTAX, run: generateCommand },
  { syntax: EXPORT_SYNTAX, run: exportCommand },
  { syntax: RUNS_SYNTAX, run: runsCommand },
  { syntax: PLOT_SYNTAX, run: plotCommand },
  { syntax: COMPARE_SYNTAX, run: compareCommand },
  { syntax: DASHBOARD_SYNTAX, run: dashboardCommand },
  { syntax: SCHEDULE_SYNTAX, run: printSchedule },
  { syntax: PROFILE_SYNTAX, run: profileCommand },
  { syntax: PLAN_SYNTAX, run: planCommand },
  { syntax: EXPLORE_SYNTAX, run: exploreCommand },
  { syntax: REPLAY_SYNTAX, run: (args, context) => replayCommand(args, context, TRAIN) },
  { syntax: JOURNAL_SYNTAX, run: journalCommand },
  { syntax: TRACE_SYNTAX, run: traceCommand },
  { syntax: ACTORS_SYNTAX, run: actorsCommand },
  { syntax: DEVICES_SYNTAX, run: devicesCommand },
  { syntax: COMPLETION_SYNTAX, run: (args) => completionCommand(args, syntaxes()) },
];

const syntaxes = (): readonly CommandSyntax[] => COMMANDS.map(({ syntax }) => syntax);

/**
 * Runs `troupe` with its arguments; returns the exit code.
 *
 * @throws {TypeError} (as a rejection) when there is no such command; what a command throws.
 */
export async function troupe(
  [name = "help", ...args]: readonly string[],
  context: CommandContext,
): Promise<number> {
  if (["--version", "-V", "version"].includes(name)) return print(VERSION), 0;
  const [about] = args;
  if (["--help", "-h", "help"].includes(name)) {
    if (name !== "help" || about === undefined) return print(usage()), 0;
    return await commandOf(about).run(["--help"], context);
  }
  const { run } = commandOf(name);
  try {
    return await run(args, context);
  } catch (error) {
    throw explainSystemError(error, [name, ...args]);
  }
}

function commandOf(name: string): Command {
  const found = COMMANDS.find(({ syntax }) => syntax.name === name);
  if (found) return found;
  const names = COMMANDS.map(({ syntax }) => syntax.name);
  throw new TypeError(
    `Cannot run "${inOneLine(name)}": the command must be one of ${names.join(", ")}${
      didYouMean(name, names)
    }`,
  );
}

function usage(): string {
  const rows = syntaxes().map(({ name, summary }) => [`  ${name}`, summary]);
  return [
    `Usage: ${commandLine("COMMAND", "[flags]")}`,
    ...formatTable(rows, { left: [0, 1] }),
    "",
    "Each lists its flags with --help, or -h; troupe --version, or -V, tells which Troupe this is.",
  ].join("\n");
}
