/**
 * `troupe generate`: text from a checkpoint.
 *
 * @module
 */

import {
  bytesTokenizer,
  checkTokens,
  generateText,
  gpt2Tokenizer,
  openDevice,
  resolveDevice,
} from "../../kernels/mod.ts";
import { readCheckpoint } from "../checkpoint.ts";
import { type CommandContext, print, printError } from "./command.ts";
import { helpLines, parseFlags, withDefaults } from "./flags.ts";

const FLAGS = {
  from: { kind: "text", value: "DIR", help: "a run's folder, or that of one checkpoint" },
  prompt: { kind: "text", value: "TEXT", default: "The ", help: "text to go on from" },
  tokens: { kind: "integer", default: 200, help: "tokens to add" },
  temperature: { kind: "number", default: 0.8, help: "0 takes the likeliest token each time" },
  seed: { kind: "integer", minimum: 0, default: 1, help: "of the draws" },
  device: {
    kind: "choice",
    choices: ["auto", "native", "wasm", "reference"],
    default: "auto",
    help: "what computes",
  },
  help: { kind: "switch", help: "show this" },
} as const;

/** Sizes that a checkpoint of a GPT-2 must have. */
const SIZES = ["layers", "hidden", "heads", "seq", "vocab"] as const;

/** Runs the command; returns the exit code. */
export async function generateCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  const flags = withDefaults(FLAGS, parseFlags(args, FLAGS));
  if (flags.help) {
    print(["Samples text from a checkpoint.", "", ...helpLines(FLAGS)].join("\n"));
    return 0;
  }
  const { from, prompt, tokens, temperature, seed } = flags;
  if (from === undefined) {
    throw new TypeError("Cannot generate: --from must name a checkpoint's folder");
  }
  const checkpoint = await readCheckpoint(from, printError);
  if (!checkpoint) {
    throw new RangeError(`Cannot generate: --from must hold a checkpoint, received "${from}"`);
  }
  const { config, state: { weights } } = checkpoint;
  const sizes = SIZES.map((name) => Number(config[name]));
  if (config.architecture !== "gpt2" || !sizes.every(Number.isSafeInteger)) {
    throw new RangeError(
      `Cannot generate: the checkpoint must be of a gpt, received ${config.architecture} in ${checkpoint.path}`,
    );
  }
  const [layers, hidden, heads, seq, vocab] = sizes as [number, number, number, number, number];
  const tokenizer = config.tokenizer === "gpt2"
    ? await gpt2Tokenizer(printError)
    : bytesTokenizer();
  checkTokens(tokenizer.encode(prompt), vocab);
  const choice = await resolveDevice(flags.device, printError);
  const device = await openDevice(choice.name, choice);
  begin();
  print(
    await generateText(device, tokenizer, {
      config: { layers, hidden, heads, seq, vocab, tie: config.tie === true },
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
