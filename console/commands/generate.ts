/**
 * `troupe generate`: text from a checkpoint.
 *
 * @module
 */

import { readTensors } from "../../actors/checkpoints/tensors.ts";
import {
  checkTokens,
  type FileTokenizer,
  generate,
  openDevice,
  resolveDevice,
  type TextStream,
  textStream,
  type Tokenizer,
} from "../../kernels/mod.ts";
import type { CommandContext } from "../command.ts";
import {
  type CommandSyntax,
  COMMON_FLAGS,
  DEVICE_FLAG,
  readNumbers,
  withDefaults,
} from "../flag.ts";
import { answersItself, parseFlags } from "../parse.ts";
import { runPath } from "../run_files/run_folder.ts";
import { escapeControls, printError, writeAll } from "../terminal.ts";
import {
  findTrainedDecoder,
  openTokenizer,
  TOKENIZER_FLAG,
  tokenizerSource,
  type TrainedDecoder,
} from "./trained.ts";

/** What is printed. */
interface PrintedTokens {
  /** The ids to go on from. */
  readonly prompt: readonly number[];
  /** The ids that are added. */
  readonly added: AsyncIterable<number>;
  /** What makes text of them; without it ids are printed, with commas between. */
  readonly tokenizer: Parameters<typeof textStream>[0] | undefined;
}

/**
 * Prints tokens to standard output, each as soon as it is there, and a line's end. Stops early, and
 * in silence, when the signal is aborted.
 */
export async function printTokens(
  { prompt, added, tokenizer }: PrintedTokens,
  signal?: AbortSignal,
): Promise<void> {
  const { push, end } = tokenizer ? textStream(tokenizer) : idStream();
  // A tokenizer may take long, and is not waited for once the signal is aborted.
  const { promise: stopped, resolve: stop } = Promise.withResolvers<string>();
  signal?.addEventListener("abort", () => stop(""));
  const write = async (text: Promise<string>) =>
    writeAll(Deno.stdout, escapeControls(await Promise.race([text, stopped])));
  try {
    await write(push(prompt));
    for await (const id of added) {
      await write(push([id]));
      if (signal?.aborted) break;
    }
    await write(end());
  } finally {
    writeAll(Deno.stdout, "\n");
  }
}

/** Ids as text. */
function idStream(): TextStream {
  let separator = "";
  return {
    push(ids) {
      const text = `${separator}${ids.join(",")}`;
      separator = ",";
      return Promise.resolve(text);
    },
    end: () => Promise.resolve(""),
  };
}

const FLAGS = {
  from: {
    kind: "path",
    value: "RUN",
    help: "a run's folder or name, the folder of one checkpoint, or one of Hugging Face's",
  },
  prompt: { kind: "text", value: "TEXT", default: "The ", help: "text to go on from" },
  tokens: { kind: "integer", maximum: 1_000_000, default: 200, help: "tokens to add" },
  temperature: { kind: "number", default: 0.8, help: "0 takes the likeliest token each time" },
  "top-k": {
    kind: "integer",
    otherwise: "all",
    help: "draw from that many of the likeliest tokens only",
  },
  "top-p": {
    kind: "number",
    maximum: 1,
    otherwise: "all",
    help: "draw from the fewest of the likeliest tokens only that have this share of probability",
  },
  slide: {
    kind: "integer",
    default: 1,
    help:
      "tokens by which a full context moves on: with 1 each token sees all it can, more is faster",
  },
  tokenizer: { ...TOKENIZER_FLAG, otherwise: "that of the run" },
  ids: {
    kind: "own",
    value: "N,N",
    read: readNumbers,
    must: "numbers from 0 with commas between them, such as 3,5",
    otherwise: "the text's",
    help: "token ids to go on from, instead of a text; prints ids",
  },
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
  usage: ["--from RUN [flags]"],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 1 it failed; 2 bad input."],
};

/** Runs the command; returns the exit code. */
export async function generateCommand(
  args: readonly string[],
  { begin, signal }: Pick<CommandContext, "begin"> & Partial<CommandContext>,
): Promise<number> {
  if (answersItself(args, GENERATE_SYNTAX)) return 0;
  const given = parseFlags(args, FLAGS), flags = withDefaults(FLAGS, given);
  const { from, tokens, temperature, seed, slide } = flags;
  if (from === undefined) {
    throw new TypeError("Cannot generate: --from must name a checkpoint's folder");
  }
  const trained = await findTrainedDecoder("generate", "--from", runPath(from));
  const { architecture, config } = trained, weights = readTensors(trained.weights);
  if (slide > config.seq) {
    throw new RangeError(
      `Cannot generate: --slide must be at most ${config.seq}, the tokens of its context, received ${slide}`,
    );
  }
  const tokenizer = flags.ids ? undefined : await tokenizerOf(trained, flags.tokenizer);
  const prompt = await promptOf(given, tokenizer, config.vocab, flags.prompt);
  if (prompt.length > config.seq) {
    printError(
      `The prompt has ${prompt.length} tokens: the model sees the last ${config.seq}, all that its context holds`,
    );
  }
  const choice = await resolveDevice(flags.device, printError);
  // Signals are heard between tokens: a run need not leave the thread free.
  const device = await openDevice(choice.name, { ...choice, isBlocking: true });
  begin();
  begin(""); // from now on Ctrl-C ends the text, with the line
  const sampling = { temperature, topK: flags["top-k"], topP: flags["top-p"], seed };
  const model = { architecture, config, weights };
  const added = generate(device, { ...model, prompt, tokens, slide, ...sampling });
  await printTokens({ prompt, added, tokenizer }, signal);
  device.close();
  return signal?.aborted ? 130 : 0;
}

/** The ids to go on from: those that are given, or those of a text. */
async function promptOf(
  given: { readonly ids?: readonly number[]; readonly prompt?: string },
  text: Tokenizer | FileTokenizer | undefined,
  vocab: number,
  prompt: string,
): Promise<number[]> {
  if (given.ids && given.prompt !== undefined) {
    throw new TypeError("Cannot generate: it must go on from --ids or --prompt, received both");
  }
  const ids = given.ids ?? [...await text!.encode(prompt)];
  checkTokens(Int32Array.from(ids), vocab);
  return [...ids];
}

/**
 * What turns the tokens of a model into text.
 *
 * @param asked what the user says that it is.
 * @throws {TypeError} when nobody has said it.
 */
async function tokenizerOf(
  { path, tokenizer }: TrainedDecoder,
  asked: string | undefined,
): Promise<Tokenizer | FileTokenizer> {
  const opened = await openTokenizer(asked === undefined ? tokenizer : tokenizerSource(asked));
  if (opened) return opened;
  throw new TypeError(
    `Cannot generate text from ${path}: it has no tokenizer, so --tokenizer must say what made its tokens, or --ids give token ids to go on from, received neither`,
  );
}
