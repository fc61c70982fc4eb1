/**
 * What a trained decoder writes.
 *
 * @module
 */

import { type GenerateOptions, generateText, openDevice } from "../../../kernels/mod.ts";
import type { Trained } from "../model_part.ts";

/** What it writes, or why that cannot be read. */
export async function sampleText(
  architecture: NonNullable<GenerateOptions["architecture"]>,
  config: GenerateOptions["config"],
  { weights, device: choice, data: { tokenizer }, seed }: Trained,
): Promise<string> {
  if (!tokenizer || config.vocab < tokenizer.vocabularySize) {
    return "No sample: the token ids have no tokenizer (for --tokens, --tokenizer names it); generate --ids goes on with ids.";
  }
  const device = await openDevice(choice.name, { ...choice, isBlocking: true });
  const options = { architecture, config, weights, prompt: "The ", tokens: 200, seed };
  const text = await generateText(device, tokenizer, options);
  device.close();
  return `A sample:\n${text}`;
}
