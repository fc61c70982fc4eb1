/**
 * Digits under noise, to learn what was there before.
 *
 * @module
 */

import { openDraws } from "../layers/initial_values.ts";
import { DIGIT_PIXELS, digitBatches, type Digits } from "./digits.ts";
import { type BatchPlan, seekable, type SeekableBatches } from "./rows.ts";

/** One micro-batch of B digits; both arrays own their whole buffers. */
export type NoisyDigitBatch = {
  /** [B, 784]: `targets` and noise. */
  readonly features: Float32Array<ArrayBuffer>;
  /** [B, 784] */
  readonly targets: Float32Array<ArrayBuffer>;
};

/** What is added to each pixel. */
export interface Noise {
  /** Of normal numbers with mean 0. */
  readonly deviation: number;
  /** Of the noise of each row, whoever cuts them into micro-batches. */
  readonly seed: number;
}

/**
 * Cuts digits into micro-batches as {@linkcode digitBatches} does, each row with noise of its own: a
 * digit that comes again in another epoch has other noise.
 *
 * @throws {RangeError} as {@linkcode digitBatches}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { DIGIT_PIXELS, noisyDigitBatches } from "@troupe/troupe/kernels";
 *
 * const digits = { images: new Float32Array(2 * DIGIT_PIXELS), labels: Int32Array.of(3, 1) };
 * const cut = (microBatch: number) =>
 *   [...noisyDigitBatches(digits, { microBatch, microBatches: 1 }, { deviation: 0.5, seed: 1 })];
 * const [[both], [, second]] = [cut(2), cut(1)];
 * assert.deepEqual(both!.features.slice(DIGIT_PIXELS), second!.features);
 * const meanSquare = both!.features.reduce((sum, value) => sum + value ** 2, 0) / (2 * DIGIT_PIXELS);
 * assert.ok(Math.abs(meanSquare - 0.5 ** 2) < 0.02);
 * ```
 */
export function noisyDigitBatches(
  digits: Digits,
  plan: BatchPlan,
  noise: Noise,
): SeekableBatches<NoisyDigitBatch> {
  const { microBatch, microBatches, replicas = 1, fromStep = 1 } = plan;
  const batches = digitBatches(digits, plan);
  const first = (fromStep - 1) * replicas * microBatches * microBatch;
  return seekable(function* (skipped) {
    let row = first + skipped * microBatch;
    for (const { features: targets } of batches.from(skipped)) {
      yield { features: addNoise(targets, row, noise), targets };
      row += microBatch;
    }
  });
}

function addNoise(pixels: Float32Array<ArrayBuffer>, firstRow: number, noise: Noise) {
  const { deviation, seed } = noise, initializer = { kind: "normal", deviation } as const;
  const noisy = new Float32Array(pixels.length);
  for (let at = 0, row = firstRow; at < pixels.length; at += DIGIT_PIXELS, row++) {
    const name = `noise ${row}`, spec = { name, shape: [DIGIT_PIXELS], initializer };
    openDraws(spec, name, seed)(noisy.subarray(at, at + DIGIT_PIXELS));
  }
  return noisy.map((value, i) => value + pixels[i]!);
}
