/**
 * The task of `--model gpt`: a GPT, and the text or the tokens that it learns.
 *
 * @module
 */

import {
  bytesTokenizer,
  checkTokens,
  decodeTokens,
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
} from "../../kernels/mod.ts";
import { print, printError } from "../print.ts";
import { textOf } from "./data_files.ts";
import type { Task } from "./task.ts";
import type { TrainRequest } from "./train_request.ts";

/** A GPT, and the text that it learns. */
export async function textTask(request: TrainRequest): Promise<Task> {
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
