/**
 * `--model llama`: a Llama that learns to go on with its tokens.
 *
 * @module
 */

import { llama, llamaSizes } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart } from "../model_part.ts";
import { sampleText } from "./sample_text.ts";

/** A Llama. */
export const llamaModel: ModelPart<"vocab"> = defineModel({
  name: "llama",
  version: "1",
  sizes: ["vocab"],
  data: "sotu",
  build(options) {
    const { layers, hidden, heads, seq, vocab, tie, headSlices = 1, dropout, microBatch } = options;
    if (headSlices > 1) {
      throw new RangeError(
        `Cannot build a Llama: its head must be in one slice, received ${headSlices}`,
      );
    }
    const { keyValueHeads, intermediate, ropeTheta, normEpsilon, data } = options;
    const { dropout: _, ...config } = llamaSizes({
      ...{ layers, hidden, heads, seq, vocab: vocab ?? data.vocab, tie },
      ...{ keyValueHeads, intermediate, ropeTheta, normEpsilon },
    });
    return {
      ...llama({ ...config, dropout }, microBatch),
      config: { architecture: "llama", ...config },
      show: (trained) => sampleText("llama", config, trained),
    };
  },
});
