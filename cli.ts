/**
 * The `troupe` command: `deno task troupe train`, `generate` and the like.
 *
 * @module
 */

import {
  type CommandContext,
  exploreCommand,
  generateCommand,
  journalCommand,
  print,
  replayCommand,
  runCommand,
  writeAll,
} from "./console/mod.ts";
import { checkInputFile, CSV_BYTES_MAX, decodeText } from "./kernels/mod.ts";
import { scheduleCommand } from "./schedules/mod.ts";
import { main as train } from "./examples/train_gpt.ts";

const TRAIN_MODULE = new URL("./examples/train_gpt.ts", import.meta.url).href;

type Command = (args: string[], context: CommandContext) => Promise<number>;

const COMMANDS: Readonly<Record<string, { readonly run: Command; readonly help: string }>> = {
  train: { run: train, help: "trains a model with a pipeline of stage actors" },
  generate: { run: generateCommand, help: "samples text from a checkpoint" },
  schedule: { run: schedule, help: "shows, lists and compares schedules" },
  explore: { run: exploreCommand, help: "plays a scenario in many orders of its messages" },
  replay: {
    run: (args, context) => replayCommand(args, context, { run: train, module: TRAIN_MODULE }),
    help: "makes a recorded run again and compares every step",
  },
  journal: { run: journalCommand, help: "shows a journal, or where two of them part" },
};

/** Prints a schedule, or writes it to the file that `--out` names. */
async function schedule(args: string[]): Promise<number> {
  const isTerminal = Deno.stdout.isTerminal();
  const { output, out } = scheduleCommand(args, {
    color: isTerminal && !Deno.noColor,
    columns: isTerminal ? Deno.consoleSize().columns : undefined,
    readTextFile(path) {
      checkInputFile(path, CSV_BYTES_MAX);
      return decodeText(Deno.readFileSync(path), path);
    },
  });
  if (out === undefined) writeAll(Deno.stdout, output);
  else await Deno.writeTextFile(out, output);
  return 0;
}

async function troupe([name = "--help", ...args]: string[], context: CommandContext) {
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

if (import.meta.main) await runCommand((context) => troupe(Deno.args, context));
