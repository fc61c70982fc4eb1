/**
 * Trains a small GPT on a real English text with a pipeline of stage actors: `deno task train`.
 * `--help` lists the flags; `--model mlp` trains on digits instead, as train_mnist.ts says.
 *
 * @module
 */

import {
  bytesTokenizer,
  generateText,
  gpt2,
  gpt2Tokenizer,
  heldOutBatches,
  loadText,
  openDevice,
  rowCount,
  shuffledOrder,
  splitTokens,
  tokenBatches,
  type Tokenizer,
  train,
} from "../mod.ts";
import { checkTokens, decodeTokens } from "../kernels/mod.ts";
import {
  checkpointConfig,
  type CommandContext,
  consoleReport,
  jsonReport,
  print,
  printError,
  readTrainFlags,
  runCommand,
  runOptions,
  type Task,
  textOf,
  trainHelp,
  type TrainRequest,
} from "../console/mod.ts";
import { digitsTask } from "./train_mnist.ts";

/** A GPT, and the text that it learns. */
async function textTask(request: TrainRequest): Promise<Task> {
  const { flags, microBatches } = request;
  const tokenizer = flags.tokenizer === "gpt2" ? await gpt2Tokenizer(printError) : bytesTokenizer();
  const { layers, hidden, heads, seq, vocab = tokenizer.vocabularySize, tie, replicas } = flags;
  const config = { layers, hidden, heads, seq, vocab, tie: tie ?? false };
  const microBatch = flags["micro-batch"];
  const { tokens, order, heldOut } = await readData(request, tokenizer, vocab);
  const cut = { seq, vocabularySize: vocab, microBatch, microBatches, replicas };
  const reading = order ? { order } : { steps: flags.steps, lastIsSmaller: true };
  return {
    model: gpt2(config, microBatch),
    data: tokenBatches({ ...cut, tokens, ...reading }),
    heldOut: () => heldOutBatches({ ...cut, tokens: heldOut }),
    config: { architecture: "gpt2", ...config, tokenizer: tokenizer.name },
    async show(weights, choice) {
      if (vocab < tokenizer.vocabularySize) return; // the tokens are not those of a text
      const device = await openDevice(choice.name, choice);
      const options = { config, weights, prompt: "The ", tokens: 200, seed: flags.seed };
      print(`\nA sample:\n${await generateText(device, tokenizer, options)}`);
      device.close();
    },
  };
}

/** What is trained on, in which order, and what is held out. */
async function readData(request: TrainRequest, tokenizer: Tokenizer, vocab: number) {
  const { flags, files, microBatches } = request;
  if (files.tokens) { // read in order; what the run does not reach is held out
    const tokens = decodeTokens(files.tokens.content, files.tokens.path);
    const used = flags.steps * flags.replicas * microBatches * flags["micro-batch"] * flags.seq;
    return { tokens, heldOut: tokens.subarray(used) };
  }
  const text = files.text ? textOf(files.text) : await loadText(flags.data ?? "sotu", printError);
  const encoded = tokenizer.encode(text);
  checkTokens(encoded, vocab);
  const { train: tokens, heldOut } = splitTokens(encoded, flags.seq);
  return { tokens, heldOut, order: shuffledOrder(rowCount(tokens.length, flags.seq), flags.seed) };
}

/** Trains as the flags say; returns the exit code. */
export async function main(args: string[], context: CommandContext): Promise<number> {
  const { begin, signal, system } = context;
  if (args.includes("--help")) return print(trainHelp()), 0;
  const request = await readTrainFlags(args), { flags, start, out } = request;
  const task = await (flags.model === "mlp" ? digitsTask(request) : textTask(request));
  const config = checkpointConfig(request, task.config);
  const every = flags["eval-every"] ?? (flags.json || flags.tokens ? undefined : 50);
  using report = flags.json ? jsonReport(flags.memory) : consoleReport(flags.steps, flags.memory);
  for await (
    const event of train({
      ...runOptions(request, import.meta.url),
      model: task.model,
      data: task.data,
      evaluation: every ? { every, batches: task.heldOut(), atStart: !flags.json } : undefined,
      checkpoint: out === undefined ? undefined : {
        directory: out,
        every: flags["checkpoint-every"],
        keep: flags.keep,
        config,
      },
      signal,
      system,
      announce: printError,
    })
  ) {
    if (event.type === "plan") {
      begin("the step under way");
      if (start) printError(start);
    }
    report(event);
    if (event.type !== "end") continue;
    if (event.isInterrupted) return 130;
    begin(); // nothing is left to finish: Ctrl-C ends at once
    if (!flags.json) await task.show(event.weights, event.choice);
  }
  return 0;
}

if (import.meta.main) await runCommand((context) => main(Deno.args, context));
