/**
 * `troupe generate`: text from a checkpoint.
 *
 * @module
 */

import {
  bytesTokenizer,
  checkTokens,
  compileModel,
  generateText,
  type Gpt2Config,
  gpt2Logits,
  gpt2Ties,
  gpt2Tokenizer,
  openDevice,
  resolveDevice,
} from "../../kernels/mod.ts";
import { type Checkpoint, readCheckpoint } from "../../actors/checkpoints/mod.ts";
import { checkFinite } from "../../actors/commit/non_finite.ts";
import { checkTensors } from "../../actors/run/options/check_resume.ts";
import { type CommandContext } from "../command.ts";
import { print, printError } from "../print.ts";
import { inOneLine, quoted } from "../escape.ts";
import { answersItself } from "../flags/asked.ts";
import { DEVICE_FLAG } from "../flags/device_flag.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { withDefaults } from "../flags/flag.ts";
import { parseFlags } from "../flags/parse.ts";

const FLAGS = {
  from: { kind: "path", value: "DIR", help: "a run's folder, or that of one checkpoint" },
  prompt: { kind: "text", value: "TEXT", default: "The ", help: "text to go on from" },
  tokens: { kind: "integer", maximum: 1_000_000, default: 200, help: "tokens to add" },
  temperature: { kind: "number", default: 0.8, help: "0 takes the likeliest token each time" },
  seed: {
    kind: "integer",
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    default: 1,
    help: "of the draws",
  },
  device: DEVICE_FLAG,
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe generate`. */
export const GENERATE_SYNTAX: CommandSyntax = {
  name: "generate",
  summary: "samples text from a checkpoint",
  usage: ["--from DIR [flags]"],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 1 it failed; 2 bad input."],
};

/** Sizes that a checkpoint of a GPT-2 must have. */
const SIZES = ["layers", "hidden", "heads", "seq", "vocab"] as const;

/** Runs the command; returns the exit code. */
export async function generateCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  if (answersItself(args, GENERATE_SYNTAX)) return 0;
  const flags = withDefaults(FLAGS, parseFlags(args, FLAGS));
  const { from, prompt, tokens, temperature, seed } = flags;
  if (from === undefined) {
    throw new TypeError("Cannot generate: --from must name a checkpoint's folder");
  }
  const checkpoint = await readCheckpoint(from, printError);
  if (!checkpoint) {
    throw new RangeError(
      `Cannot generate: --from must hold a checkpoint, received ${quoted(from)}`,
    );
  }
  const { state: { weights } } = checkpoint;
  const config = modelOf(checkpoint);
  const tokenizer = checkpoint.config.tokenizer === "gpt2"
    ? await gpt2Tokenizer(printError)
    : bytesTokenizer();
  checkTokens(tokenizer.encode(prompt), config.vocab);
  const choice = await resolveDevice(flags.device, printError);
  const device = await openDevice(choice.name, choice);
  begin();
  print(
    await generateText(device, tokenizer, {
      config,
      weights,
      prompt,
      tokens,
      temperature,
      seed,
    }),
  );
  device.close();
  return 0;
}

/**
 * The sizes of the GPT-2 of a checkpoint, whose weights are exactly those of such a model.
 *
 * @throws {RangeError} when the checkpoint says otherwise.
 */
function modelOf({ path, config, state, shapes }: Checkpoint): Gpt2Config {
  const refuse = (must: string, received: unknown) => {
    throw new RangeError(
      `Cannot generate from ${path}: its ${must}, received ${quoted(received)}`,
    );
  };
  const { architecture, tokenizer = "bytes", tie = false } = config;
  if (architecture !== "gpt2") {
    throw new RangeError(
      `Cannot generate: the checkpoint must be of a gpt, received ${
        inOneLine(String(architecture).slice(0, 80))
      } in ${path}`,
    );
  }
  for (const name of SIZES) {
    if (!Number.isSafeInteger(config[name])) refuse(`${name} must be a whole number`, config[name]);
  }
  if (tokenizer !== "bytes" && tokenizer !== "gpt2") {
    refuse("tokenizer must be bytes or gpt2", tokenizer);
  }
  if (typeof tie !== "boolean") refuse("tie must be true or false", tie);
  const model = Object.fromEntries(["tie", ...SIZES].map((name) => [name, config[name] ?? tie]));
  const sizes = model as unknown as Gpt2Config;
  const layers = gpt2Logits(sizes), ties = gpt2Ties(sizes);
  const program = compileModel({ name: "gpt", layers, ties, predictions: 1 }, "full", {
    endsWithLoss: false,
  });
  checkTensors("weights", program.parameters, state.weights, shapes.weights);
  checkFinite({ weights: state.weights, moments: new Map() }, `Cannot generate from ${path}`);
  return sizes;
}
