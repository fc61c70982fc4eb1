/**
 * `--model gpt`: a GPT-2 that learns to go on with its tokens.
 *
 * @module
 */

import { generateText, gpt2, type Gpt2Config, openDevice } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart, type Trained } from "../model_part.ts";

/** A GPT-2. */
export const model: ModelPart<"vocab"> = defineModel({
  name: "gpt",
  version: "1",
  sizes: ["vocab"],
  data: "sotu",
  build({ layers, hidden, heads, seq, vocab, tie, headSlices, dropout, microBatch, data }) {
    const sizes = { layers, hidden, heads, seq, vocab: vocab ?? data.vocab, tie };
    const config: Gpt2Config = { ...sizes, ...headSlices && { headSlices } };
    return {
      ...gpt2({ ...config, dropout }, microBatch),
      config: { architecture: "gpt2", ...config },
      show: (trained) => sample(config, trained),
    };
  },
});

/** What it writes, or why that cannot be read. */
async function sample(
  config: Gpt2Config,
  { weights, device: choice, data: { tokenizer }, seed }: Trained,
): Promise<string | undefined> {
  if (!tokenizer || config.vocab < tokenizer.vocabularySize) {
    return "No sample: the token ids have no tokenizer (for --tokens, --tokenizer names it); generate --ids goes on with ids.";
  }
  const device = await openDevice(choice.name, { ...choice, isBlocking: true });
  const options = { config, weights, prompt: "The ", tokens: 200, seed };
  const text = await generateText(device, tokenizer, options);
  device.close();
  return `A sample:\n${text}`;
}
