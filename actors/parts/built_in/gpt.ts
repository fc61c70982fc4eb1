/**
 * `--model gpt`: a GPT-2 that learns to go on with its tokens.
 *
 * @module
 */

import { gpt2, type Gpt2Config } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart } from "../model_part.ts";
import { sampleText } from "./sample_text.ts";

/** A GPT-2. */
export const gptModel: ModelPart<"vocab"> = defineModel({
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
      show: (trained) => sampleText("gpt2", config, trained),
    };
  },
});
