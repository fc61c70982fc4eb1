/**
 * How many samples a trained classifier knows, in words.
 *
 * @module
 */

import type { Layer } from "../../../kernels/mod.ts";
import type { Trained } from "../model_part.ts";

/**
 * The share of held-out samples whose label has the greatest logit; undefined where none are held out.
 *
 * @param logits layers that predict for one sample.
 */
export async function recognised(
  { data, predict }: Trained,
  logits: readonly Layer[],
): Promise<string | undefined> {
  const samples = data.heldOut?.(1) ?? [];
  if (samples.length === 0) return undefined;
  const logitsOf = await predict(logits);
  let right = 0;
  for (const { features, labels } of samples) {
    const logits = await logitsOf({ features: features! });
    if (logits.indexOf(Math.max(...logits)) === labels![0]) right++;
  }
  const percent = (100 * right / samples.length).toFixed(1);
  return `${percent} % of the held-out samples are recognised`;
}
