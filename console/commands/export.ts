/**
 * `troupe export`: a trained model in the format of another program.
 *
 * @module
 */

import { checkNewFolder } from "../../actors/checkpoints/durable_folder.ts";
import { type CommandContext } from "../command.ts";
import { inOneLine } from "../escape.ts";
import { exportHuggingFace } from "../export/hugging_face.ts";
import { answersItself } from "../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { type FlagValues, withDefaults } from "../flags/flag.ts";
import { parseArguments } from "../flags/parse.ts";
import { print } from "../print.ts";
import { findTrainedGpt2, type TrainedGpt2 } from "../trained/trained_gpt2.ts";

const FLAGS = {
  format: { kind: "choice", choices: ["hf"], help: "hf: a folder as transformers writes it" },
  out: { kind: "path", value: "DIR", help: "the new folder" },
  dtype: {
    kind: "choice",
    choices: ["f32", "f16", "bf16"],
    default: "f32",
    help: "in which type weights are stored",
  },
  ...COMMON_FLAGS,
} as const;

type ExportFlags = FlagValues<typeof FLAGS> & { readonly out: string };

/** The declaration of `troupe export`. */
export const EXPORT_SYNTAX: CommandSyntax = {
  name: "export",
  summary: "writes a trained model in the format of another program",
  usage: ["RUN --format hf --out DIR"],
  about: ["RUN is a run's folder, whose newest checkpoint is taken, or that of one checkpoint."],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 1 it failed, and DIR is not there; 2 bad input."],
};

/** What writes each format into a folder that is not there yet. */
const FORMATS: Readonly<
  Record<"hf", (model: TrainedGpt2, flags: ExportFlags) => Promise<void>>
> = { hf: exportHuggingFace };

/** Runs the command; returns the exit code. */
export async function exportCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  if (answersItself(args, EXPORT_SYNTAX)) return 0;
  const { flags: given, words } = parseArguments(args, FLAGS, { takesWords: true });
  const { format, out } = given, [run] = words;
  if (run === undefined || words.length > 1) {
    throw new TypeError(
      `Cannot export: the number of runs must be 1, received ${words.length}`,
    );
  }
  if (format === undefined) {
    throw new TypeError(
      `Cannot export: --format must be one of ${FLAGS.format.choices.join(", ")}, received none`,
    );
  }
  if (out === undefined) {
    throw new TypeError("Cannot export: --out must name a new folder, received none");
  }
  await checkNewFolder(out);
  const model = await findTrainedGpt2("export", "RUN", run);
  begin();
  await FORMATS[format](model, { ...withDefaults(FLAGS, given), out });
  print(`${inOneLine(model.path)} is exported to ${inOneLine(out)}`);
  return 0;
}
