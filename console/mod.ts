/**
 * The `troupe` command and its parts, for your own command: flags that are declared
 * once, the help and completion that come from them, exit codes and signals, and reports of a run.
 *
 * @module
 */

import { commandLine } from "../actors/options/limits.ts";
import { suggest } from "../actors/options/option.ts";
import { formatTable } from "../schedules/pictures/grid.ts";
import type { CommandContext } from "./command.ts";
import { ACTORS_SYNTAX, actorsCommand } from "./commands/actors.ts";
import {
  DASHBOARD_SYNTAX,
  dashboardCommand,
  PLAYGROUND_SYNTAX,
  playgroundCommand,
} from "./commands/dashboard.ts";
import { DEVICES_SYNTAX, devicesCommand } from "./commands/devices.ts";
import { EXPLORE_SYNTAX, exploreCommand } from "./commands/explore.ts";
import { EXPORT_SYNTAX, exportCommand } from "./commands/export.ts";
import { GENERATE_SYNTAX, generateCommand } from "./commands/generate.ts";
import { JOIN_SYNTAX, joinCommand, NATS_SYNTAX, natsCommand } from "./commands/hosts.ts";
import { JOURNAL_SYNTAX, journalCommand, REPLAY_SYNTAX, replayCommand } from "./commands/replay.ts";
import { planCommand } from "./commands/plan.ts";
import { PLAN_SYNTAX } from "./commands/plan_flags.ts";
import { PROFILE_SYNTAX, profileCommand } from "./commands/profile.ts";
import {
  COMPARE_SYNTAX,
  compareCommand,
  PLOT_SYNTAX,
  plotCommand,
  RUNS_SYNTAX,
  runsCommand,
} from "./commands/runs.ts";
import { printSchedule } from "./commands/schedule.ts";
import { SCHEDULE_SYNTAX } from "./commands/schedule_flags.ts";
import { TRACE_SYNTAX, traceCommand } from "./commands/trace.ts";
import { COMPLETION_SYNTAX, completionCommand } from "./completion.ts";
import { type CommandSyntax, VERSION } from "./flag.ts";
import { LAUNCH_SYNTAX } from "./launch/flags.ts";
import { launchCommand } from "./launch/launch.ts";
import { explainSystemError, inOneLine, print } from "./terminal.ts";
import { TRAIN_SYNTAX } from "./train/flags.ts";
import { TRAIN_MODULE, trainCommand } from "./train/train.ts";

/** A command: its declaration and its function, which returns the exit code. */
interface Command {
  readonly syntax: CommandSyntax;
  readonly run: (args: readonly string[], context: CommandContext) => number | Promise<number>;
}

const TRAIN = { run: trainCommand, module: TRAIN_MODULE };

const COMMANDS: readonly Command[] = [
  { syntax: TRAIN_SYNTAX, run: trainCommand },
  { syntax: LAUNCH_SYNTAX, run: launchCommand },
  { syntax: JOIN_SYNTAX, run: joinCommand },
  { syntax: NATS_SYNTAX, run: natsCommand },
  { syntax: GENERATE_SYNTAX, run: generateCommand },
  { syntax: EXPORT_SYNTAX, run: exportCommand },
  { syntax: RUNS_SYNTAX, run: runsCommand },
  { syntax: PLOT_SYNTAX, run: plotCommand },
  { syntax: COMPARE_SYNTAX, run: compareCommand },
  { syntax: DASHBOARD_SYNTAX, run: dashboardCommand },
  { syntax: SCHEDULE_SYNTAX, run: printSchedule },
  { syntax: PLAYGROUND_SYNTAX, run: playgroundCommand },
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
      suggest(name, names)
    }`,
  );
}

function usage(): string {
  const rows = syntaxes().map(({ name, summary }) => [`  ${name}`, summary]);
  return [
    `Usage: ${commandLine("COMMAND", "[flags]")}`,
    ...formatTable(rows, { left: [0, 1] }),
    "",
    "Each lists its flags with --help, or -h; troupe --version, or -V, prints the version.",
  ].join("\n");
}
