/**
 * The `troupe` command: which commands there are, and what each does.
 *
 * @module
 */

import type { CommandContext } from "./command.ts";
import { exploreCommand } from "./commands/explore.ts";
import { generateCommand } from "./commands/generate.ts";
import { journalCommand } from "./commands/journal.ts";
import { replayCommand } from "./commands/replay.ts";
import { printSchedule } from "./commands/schedule.ts";
import { TRAIN_MODULE, trainCommand } from "./commands/train.ts";
import { print } from "./print.ts";

type Command = (args: string[], context: CommandContext) => Promise<number>;

const COMMANDS: Readonly<Record<string, { readonly run: Command; readonly help: string }>> = {
  train: { run: trainCommand, help: "trains a model with a pipeline of stage actors" },
  generate: { run: generateCommand, help: "samples text from a checkpoint" },
  schedule: { run: printSchedule, help: "shows, lists and compares schedules" },
  explore: { run: exploreCommand, help: "plays a scenario in many orders of its messages" },
  replay: {
    run: (args, context) =>
      replayCommand(args, context, { run: trainCommand, module: TRAIN_MODULE }),
    help: "makes a recorded run again and compares every step",
  },
  journal: { run: journalCommand, help: "shows a journal, or where two of them part" },
};

/**
 * Runs `troupe` with its arguments; returns the exit code.
 *
 * @throws {TypeError} (as a rejection) when there is no such command; what a command throws.
 */
export async function troupe(
  [name = "--help", ...args]: readonly string[],
  context: CommandContext,
): Promise<number> {
  if (Object.hasOwn(COMMANDS, name)) return await COMMANDS[name]!.run(args, context);
  const lines = Object.entries(COMMANDS).map(([known, { help }]) =>
    `  ${known.padEnd(10)} ${help}`
  );
  const usage = ["Usage: deno task troupe COMMAND [flags]", ...lines].join("\n");
  if (name === "--help" || name === "help") return print(usage), 0;
  throw new TypeError(
    `Cannot run "${name}": the command must be one of ${Object.keys(COMMANDS).join(", ")}`,
  );
}
