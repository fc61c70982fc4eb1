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
import type { Command } from "./commands/common.ts";
import { actorsCommand } from "./commands/actors.ts";
import { dashboardCommand, playgroundCommand } from "./commands/dashboard.ts";
import { devicesCommand } from "./commands/devices.ts";
import { exploreCommand } from "./commands/explore.ts";
import { exportCommand } from "./commands/export.ts";
import { generateCommand } from "./commands/generate.ts";
import { joinCommand, natsCommand } from "./commands/hosts.ts";
import { journalCommand, replayCommand } from "./commands/replay.ts";
import { planCommand } from "./commands/plan.ts";
import { profileCommand } from "./commands/profile.ts";
import { compareCommand, plotCommand, runsCommand } from "./commands/runs.ts";
import { printSchedule } from "./commands/schedule.ts";
import { SCHEDULE_SYNTAX } from "./commands/schedule_flags.ts";
import { traceCommand } from "./commands/trace.ts";
import { completionCommand } from "./completion.ts";
import { type CommandSyntax, VERSION } from "./flag.ts";
import { LAUNCH_SYNTAX } from "./launch/flags.ts";
import { launchCommand } from "./launch/launch.ts";
import { explainSystemError, inOneLine, print } from "./terminal.ts";
import { TRAIN_SYNTAX } from "./train/flags.ts";
import { trainCommand } from "./train/train.ts";

const COMMANDS: readonly Command<CommandContext>[] = [
  { syntax: TRAIN_SYNTAX, run: trainCommand },
  { syntax: LAUNCH_SYNTAX, run: launchCommand },
  ...[joinCommand, natsCommand, generateCommand, exportCommand, runsCommand, plotCommand],
  ...[compareCommand, dashboardCommand],
  { syntax: SCHEDULE_SYNTAX, run: (...given) => Promise.resolve(printSchedule(...given)) },
  ...[playgroundCommand, profileCommand, planCommand, exploreCommand, replayCommand],
  ...[journalCommand, traceCommand, actorsCommand, devicesCommand, completionCommand(syntaxes)],
];

function syntaxes(): readonly CommandSyntax[] {
  return COMMANDS.map(({ syntax }) => syntax);
}

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

function commandOf(name: string): Command<CommandContext> {
  const found = COMMANDS.find(({ syntax }) => syntax.name === name);
  if (found) return found;
  const names = COMMANDS.map(({ syntax }) => syntax.name);
  const must = `the command must be one of ${names.join(", ")}${suggest(name, names)}`;
  throw new TypeError(`Cannot run "${inOneLine(name)}": ${must}`);
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
