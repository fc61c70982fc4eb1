/**
 * `troupe export`: a trained model in the format of another program.
 *
 * @module
 */

import { checkNew } from "../../actors/checkpoints/durable_folder.ts";
import { type CommandContext } from "../command.ts";
import { inOneLine } from "../escape.ts";
import { exportHuggingFace } from "../export/hugging_face.ts";
import { exportOnnx } from "../export/onnx.ts";
import { answersItself } from "../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { type FlagValues, withDefaults } from "../flags/flag.ts";
import { parseArguments } from "../flags/parse.ts";
import { print } from "../print.ts";
import { runPath } from "../run_files/run_folder.ts";
import { TOKENIZER_FLAG } from "../trained/tokenizer_source.ts";

const FLAGS = {
  format: {
    kind: "choice",
    choices: ["hf", "onnx"],
    help: "hf: a folder as transformers writes it; onnx: one file of a whole model",
  },
  model: {
    kind: "path",
    value: "FILE.onnx",
    otherwise: "none",
    help: "onnx: the file that the run trained, of a run with --model FILE.onnx",
  },
  out: { kind: "path", value: "PATH", help: "the new folder, or file" },
  dtype: {
    kind: "choice",
    choices: ["f32", "f16", "bf16"],
    default: "f32",
    help: "in which type weights are stored in a folder",
  },
  tokenizer: {
    ...TOKENIZER_FLAG,
    otherwise: "that of the run",
    help: "hf: what made its tokens: bytes, gpt2, or a tokenizer.json or a folder with one",
  },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe export`. */
export const EXPORT_SYNTAX: CommandSyntax = {
  name: "export",
  summary: "writes a trained model in the format of another program",
  usage: ["RUN --format hf --out DIR", "RUN --format onnx [--model FILE.onnx] --out FILE.onnx"],
  about: [
    "RUN is a run's folder or its name below runs/, whose newest checkpoint is taken, the folder of one",
    "checkpoint, or a GPT-2 or a Llama in a folder of Hugging Face's.",
  ],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 1 it failed, and nothing is there; 2 bad input."],
};

/** A model that was found, and what writes it. */
interface Found {
  readonly path: string;
  write(out: string, signal: AbortSignal | undefined): Promise<void>;
}

/** A format: what it makes, and what finds a model for it. */
interface Format {
  readonly makes: "folder" | "file";
  find(run: string, flags: FlagValues<typeof FLAGS>): Promise<Found>;
}

const FORMATS: Readonly<Record<"hf" | "onnx", Format>> = {
  hf: { makes: "folder", find: exportHuggingFace },
  onnx: { makes: "file", find: exportOnnx },
};

/** Runs the command; returns the exit code. */
export async function exportCommand(
  args: readonly string[],
  { begin, signal }: Pick<CommandContext, "begin"> & Partial<CommandContext>,
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
    throw new TypeError(
      `Cannot export: --out must name a new ${FORMATS[format].makes}, received none`,
    );
  }
  for (const [name, of] of [["dtype", "hf"], ["tokenizer", "hf"], ["model", "onnx"]] as const) {
    if (given[name] === undefined || format === of) continue;
    throw new TypeError(
      `Cannot export: --${name} must come with --format ${of}, received ${format}`,
    );
  }
  const { makes, find } = FORMATS[format];
  await checkNew(out, makes);
  const look = () => find(runPath(run), withDefaults(FLAGS, given));
  let found = await look();
  begin();
  begin(""); // from now on Ctrl-C ends it, and nothing is left
  for (let tries = 1;; tries++) {
    try {
      await found.write(out, signal);
      break;
    } catch (error) {
      if (signal?.aborted) return 130;
      // A run that goes on and keeps few may have removed it for a newer one.
      const next = /^Cannot read /.test((error as Error).message) && tries < TRIES_MAX
        ? await look()
        : found;
      if (next.path === found.path) throw error;
      found = next;
    }
  }
  print(`${inOneLine(found.path)} is exported to ${inOneLine(out)}`);
  return 0;
}

/** Times that a model is looked for. */
const TRIES_MAX = 20;
