/**
 * Draws the next token from what a model computed.
 *
 * @module
 */

/** How a token is chosen. */
export interface SampleOptions {
  /** 0 takes the likeliest token; 1 samples from the model's own distribution. Default 0.8. */
  readonly temperature?: number;
  /** Draws from that many of the likeliest tokens only. Of equals the lower id comes first. */
  readonly topK?: number | undefined;
  /**
   * Draws from the fewest of the likeliest tokens only whose probabilities add up to this, from 0,
   * which leaves one, to 1: nucleus sampling (Holtzman et al. 2020). Probabilities are those that
   * temperature and `topK` leave.
   */
  readonly topP?: number | undefined;
}

/**
 * Checks how tokens are to be chosen.
 *
 * @throws {RangeError} when an option is out of its bounds.
 */
export function checkSampling({ temperature = 0.8, topK = 1, topP = 1 }: SampleOptions): void {
  const cases = [
    ["temperature must be 0 or more", temperature, temperature >= 0],
    ["topK must be a whole number from 1", topK, Number.isSafeInteger(topK) && topK >= 1],
    ["topP must be a number from 0 to 1", topP, topP >= 0 && topP <= 1],
  ] as const;
  for (const [must, received, holds] of cases) {
    if (!holds) throw new RangeError(`Cannot generate: ${must}, received ${received}`);
  }
}

/**
 * Draws an index with probability softmax(logits ÷ temperature), of those that `topK` and `topP`
 * leave.
 *
 * @param uniform what is drawn: a number from 0 to below 1.
 * @throws {RangeError} when a logit is not a finite number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { sample } from "@troupe/troupe/kernels";
 *
 * const logits = Float32Array.of(1, 3, 3, 2);
 * assert.equal(sample(logits, { temperature: 0 }, 0.9), 1);
 * assert.equal(sample(logits, { temperature: 1, topK: 1 }, 0.9), 1);
 * assert.equal(sample(logits, { temperature: 1, topK: 2 }, 0.9), 2);
 * assert.equal(sample(logits, { temperature: 1 }, 0.9), 3);
 * ```
 */
export function sample(
  logits: Float32Array,
  { temperature = 0.8, topK = Infinity, topP = 1 }: SampleOptions,
  uniform: number,
): number {
  const strange = logits.findIndex((logit) => !Number.isFinite(logit));
  if (strange >= 0) {
    throw new RangeError(
      `Cannot generate: what the model computes must be finite, received ${
        logits[strange]
      } for token ${strange}`,
    );
  }
  const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  if (temperature === 0) return logits.indexOf(highest);
  const weightOf = (logit: number) => Math.exp((logit - highest) / temperature);
  const weights = Float64Array.from(logits, weightOf);
  if (topK < logits.length || topP < 1) {
    const descending = logits.toSorted().reverse(), most = Math.min(topK, logits.length);
    const kept = nucleus(Float64Array.from(descending.subarray(0, most), weightOf), topP);
    dropAllBut(kept, weights, logits, descending[kept - 1]!);
  }
  let rest = uniform * weights.reduce((a, b) => a + b, 0);
  const index = weights.findIndex((weight) => (rest -= weight) < 0);
  return index < 0 ? weights.findLastIndex((weight) => weight > 0) : index;
}

/** How many of the likeliest, at least one, have the share `topP` of all. */
function nucleus(descending: Float64Array, topP: number): number {
  const enough = topP * descending.reduce((a, b) => a + b, 0);
  let sum = descending[0]!, count = 1;
  while (sum < enough && count < descending.length) sum += descending[count++]!;
  return topP < 1 ? count : descending.length;
}

/** Leaves the weights of the `count` likeliest, down to the logit `lowest`. */
function dropAllBut(
  count: number,
  weights: Float64Array,
  logits: Float32Array,
  lowest: number,
): void {
  let equals = count - logits.reduce((above, logit) => above + Number(logit > lowest), 0);
  logits.forEach((logit, i) => {
    const isKept = logit > lowest || (logit === lowest && equals-- > 0);
    if (!isKept) weights[i] = 0;
  });
}
