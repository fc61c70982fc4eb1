/**
 * `troupe generate`: samples text from a checkpoint.
 *
 * @module
 */

import { readTensors } from "../../actors/checkpoints/tensors.ts";
import { checkTokens, resolveDevice } from "../../kernels/internal.ts";
import {
  type FileTokenizer,
  generate,
  openDevice,
  textStream,
  type Tokenizer,
} from "../../kernels/mod.ts";
import { readNumbers } from "../../actors/options/limits.ts";
import { DEVICE_FLAG } from "../flag.ts";
import { runPath } from "../../actors/run_folder/read.ts";
import { ensure, escapeControls, printError, writeAll } from "../terminal.ts";
import { type Command, defineCommand } from "./common.ts";
import {
  ADAPTER_FLAG,
  EMA_FLAG,
  findTrainedDecoder,
  merged,
  openTokenizer,
  TOKENIZER_FLAG,
  tokenizerSource,
  type TrainedDecoder,
  withAdapter,
} from "./trained.ts";

/** Tokens to print. */
interface PrintedTokens {
  /** The ids before the generated ones. */
  readonly prompt: readonly number[];
  /** The generated ids. */
  readonly added: AsyncIterable<number>;
  /** Decodes the ids; without it ids are printed, separated by commas. */
  readonly tokenizer: Parameters<typeof textStream>[0] | undefined;
}

/**
 * Prints each token to standard output when it is generated, and a line end. Stops early, without a
 * message, when the signal is aborted.
 */
export async function printTokens(
  { prompt, added, tokenizer }: PrintedTokens,
  signal?: AbortSignal,
): Promise<void> {
  const { push, end } = textStream(tokenizer ?? IDS);
  // A tokenizer may be slow: an abort does not wait for it.
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

/** Formats ids in place of a tokenizer. */
const IDS = { decode: (ids: readonly number[]) => ids.join(",") };

const FLAGS = {
  from: {
    kind: "path",
    value: "RUN",
    help: "folder or name of a run, folder of a checkpoint, or folder of Hugging Face",
  },
  adapter: ADAPTER_FLAG,
  ema: EMA_FLAG,
  prompt: { kind: "text", value: "TEXT", default: "The ", help: "text to continue" },
  tokens: {
    kind: "integer",
    maximum: 1_000_000,
    default: 200,
    help: "number of tokens to generate",
  },
  temperature: { kind: "number", default: 0.8, help: "0 always takes the most likely token" },
  "top-k": {
    kind: "integer",
    otherwise: "all",
    help: "draw only from this number of most likely tokens",
  },
  "top-p": {
    kind: "number",
    maximum: 1,
    otherwise: "all",
    help: "draw only from the smallest set of most likely tokens with this probability",
  },
  slide: {
    kind: "integer",
    default: 1,
    help:
      "tokens by which a full context moves: 1 gives each token the longest context, more is faster",
  },
  tokenizer: { ...TOKENIZER_FLAG, otherwise: "that of the run" },
  ids: {
    kind: "own",
    value: "N,N",
    read: readNumbers,
    must: "numbers from 0 with commas between them, such as 3,5",
    otherwise: "those of the text",
    help: "token ids to continue, instead of a text; prints ids",
  },
  seed: {
    kind: "integer",
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    default: 1,
    help: "seed of the draws",
  },
  device: DEVICE_FLAG,
} as const;

/** `troupe generate`. */
export const generateCommand: Command = defineCommand({
  name: "generate",
  summary: "samples text from a checkpoint",
  usage: ["--from RUN [flags]"],
  flags: FLAGS,
  takesWords: false,
  notes: ["Exit codes: 0 done; 1 it failed; 2 bad input."],
  run: async ({ given, flags }, { begin, signal }) => {
    const { from, tokens, temperature, seed, slide } = flags;
    ensure(from !== undefined, "generate", "--from must name a run or the folder of a checkpoint");
    const found = await findTrainedDecoder("generate", runPath(from), flags.ema);
    const trained = merged(await withAdapter(found, flags.adapter));
    const { architecture, config } = trained, weights = readTensors(trained.weights);
    const most = `--slide must be at most ${config.seq}, the tokens of its context`;
    ensure(slide <= config.seq, "generate", most, slide, RangeError);
    const tokenizer = flags.ids ? undefined : await tokenizerOf(trained, flags.tokenizer);
    const prompt = await promptOf(given, tokenizer, config.vocab, flags.prompt);
    if (prompt.length > config.seq) {
      printError(
        `The prompt has ${prompt.length} tokens: the model sees the last ${config.seq}, all that its context holds`,
      );
    }
    const choice = await resolveDevice(flags.device, printError);
    // Signals are handled between tokens, so kernels may block the thread.
    const device = await openDevice(choice.name, { ...choice, isBlocking: true });
    begin();
    begin(""); // from here Ctrl-C ends the text, with a line end
    const sampling = { temperature, topK: flags["top-k"], topP: flags["top-p"], seed };
    const model = { architecture, config, weights };
    const added = generate(device, { ...model, prompt, tokens, slide, ...sampling });
    await printTokens({ prompt, added, tokenizer }, signal);
    device.close();
    if (signal?.aborted) return 130;
  },
});

/** Returns the ids before the generated ones: those of `--ids`, or of a text. */
async function promptOf(
  given: { readonly ids?: readonly number[]; readonly prompt?: string },
  text: Tokenizer | FileTokenizer | undefined,
  vocab: number,
  prompt: string,
): Promise<number[]> {
  const must = "the prompt must be --ids or --prompt";
  ensure(!given.ids || given.prompt === undefined, "generate", must, "both");
  const ids = given.ids ?? await text!.encode(prompt);
  checkTokens(Int32Array.from(ids), vocab);
  return [...ids];
}

/**
 * Opens the tokenizer of a model.
 *
 * @param named the value of `--tokenizer`.
 * @throws {TypeError} if neither the model nor the user names one.
 */
async function tokenizerOf(
  { path, tokenizer }: TrainedDecoder,
  named: string | undefined,
): Promise<Tokenizer | FileTokenizer> {
  const opened = await openTokenizer(named === undefined ? tokenizer : tokenizerSource(named));
  const must =
    "it has no tokenizer, so --tokenizer must name one, or --ids must give token ids to continue";
  ensure(opened, `generate text from ${path}`, must, "neither");
  return opened;
}
