/**
 * The `troupe` command, and what it is made of, for a command of one's own: flags that are declared
 * once, the help and completion that come from them, exit codes and signals, and reports of a run.
 *
 * @module
 */

export { type CommandContext, runCommand } from "./command.ts";
export { actorsCommand } from "./commands/actors.ts";
export { completionCommand } from "./commands/completion.ts";
export { dashboardCommand } from "./commands/dashboard.ts";
export { devicesCommand } from "./commands/devices.ts";
export { exploreCommand, type ExploredRun } from "./commands/explore.ts";
export { exportCommand } from "./commands/export.ts";
export { generateCommand } from "./commands/generate.ts";
export { journalCommand } from "./commands/journal.ts";
export { launchCommand } from "./commands/launch.ts";
export { replayCommand, type TrainProgram } from "./commands/replay.ts";
export { compareCommand } from "./commands/run_files/compare.ts";
export { plotCommand } from "./commands/run_files/plot.ts";
export { runsCommand } from "./commands/run_files/runs.ts";
export {
  scheduleCommand,
  type ScheduleCommandContext,
  type ScheduleCommandResult,
} from "./commands/schedule.ts";
export { traceCommand } from "./commands/trace.ts";
export { trainCommand } from "./commands/train.ts";
export { bashCompletion } from "./completion/bash.ts";
export { fishCompletion } from "./completion/fish.ts";
export { zshCompletion } from "./completion/zsh.ts";
export { escapeControls, inOneLine, quoted } from "./escape.ts";
export type { ResultSoFar, SoFar } from "./so_far.ts";
export { answersItself } from "./flags/asked.ts";
export { type CommandSyntax, COMMON_FLAGS, type FlagGroup } from "./flags/command_syntax.ts";
export { type ConfigFile, readConfigFile } from "./flags/config_file.ts";
export {
  type Flag,
  type FlagAlias,
  type Flags,
  type FlagValues,
  type GivenFlags,
  type ValueOf,
  withDefaults,
} from "./flags/flag.ts";
export { helpOf } from "./flags/help.ts";
export { readKeptFlags } from "./flags/kept.ts";
export {
  type Arguments,
  parseArguments,
  parseFlags,
  type ParseOptions,
  type RawArguments,
  rawArguments,
} from "./flags/parse.ts";
export { type Output, print, printError, writeAll } from "./print.ts";
export { consoleReport, jsonReport, type Report } from "./train/report.ts";
export type { KeptPart, KeptParts } from "./train/run_parts.ts";
export { troupe } from "./troupe.ts";
