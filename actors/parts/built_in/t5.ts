/**
 * `--model t5`: a T5 that learns to write one sequence for another.
 *
 * @module
 */

import { type Batch, t5, type T5Config, t5Logits, t5Ties } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart, type Trained } from "../model_part.ts";

/** A T5: the published one where the head is tied, else one of version 1.1. */
export const t5Model: ModelPart<"vocab"> = defineModel({
  name: "t5",
  version: "1",
  sizes: ["vocab"],
  data: "sort",
  build({ layers, hidden, heads, seq, vocab, tie, dropout, microBatch, data }) {
    const config = { layers, hidden, heads, seq, vocab: vocab ?? data.vocab, tie, gated: !tie };
    return {
      ...t5({ ...config, ...dropout && { dropout } }, microBatch),
      config: { architecture: "t5", ...config },
      show: (trained) => show(config, trained),
    };
  },
});

/** Samples that are decoded side by side. */
const SAMPLES = 64;

/** How many held-out sequences it writes as they should be. */
async function show(config: T5Config, { data, predict }: Trained): Promise<string | undefined> {
  const [batch] = data.heldOut?.(SAMPLES) ?? [];
  if (!batch) return undefined;
  const logitsOf = await predict(t5Logits(config, SAMPLES), t5Ties(config));
  const targets = batch.targets as Int32Array, written = await decode(config, batch.ids!, logitsOf);
  const isRight = (sample: number) => {
    const from = sample * config.seq, own = targets.subarray(from, from + config.seq);
    return own.every((target, i) => target < 0 || target === written[from + i]);
  };
  const right = Array.from({ length: SAMPLES }, (_, sample) => isRight(sample)).filter(Boolean);
  const percent = (100 * right.length / SAMPLES).toFixed(1);
  return `${percent} % of ${SAMPLES} held-out sequences are written without a mistake`;
}

/** Greedy decoding: token by token the likeliest, of all samples side by side. */
async function decode(
  { seq, vocab }: T5Config,
  ids: Batch[string],
  logitsOf: (fields: Batch) => Promise<Float32Array>,
): Promise<Int32Array> {
  const written = new Int32Array(ids.length).fill(-1);
  for (let token = 0; token < seq; token++) {
    const logits = await logitsOf({ ids, targets: written });
    for (let at = token; at < written.length; at += seq) {
      const own = logits.subarray(at * vocab, (at + 1) * vocab);
      written[at] = own.indexOf(Math.max(...own));
    }
  }
  return written;
}
