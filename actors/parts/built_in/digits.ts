/**
 * `--data mnist`: ten thousand handwritten digits; `--data noisy-mnist`: the same under noise, to
 * learn what was there before.
 *
 * @module
 */

import {
  DIGIT_PIXELS,
  digitBatches,
  DIGITS_SHA256,
  loadDigits,
  noisyDigitBatches,
  shuffledOrder,
} from "../../../kernels/mod.ts";
import { type DataPart, defineData } from "../data_part.ts";

/** What models may want to know of a digit: its pixels are a picture, row by row. */
const SIZES = { inputs: DIGIT_PIXELS, channels: 1, height: 28, width: 28 };

/** Of the noise; ink is 1, paper 0. */
const DEVIATION = 0.5;

/** The same in all runs, so that they can be compared. No run has that seed. */
const HELD_OUT_NOISE = { deviation: DEVIATION, seed: -1 };

/** Digits of MNIST, and which they are. */
export const mnist: DataPart = defineData({
  name: "mnist",
  version: "1",
  sha256: DIGITS_SHA256,
  async open({ microBatch, microBatches, replicas, seed, announce }) {
    const { train, heldOut } = await loadDigits(announce);
    const order = shuffledOrder(train.labels.length, seed);
    return {
      sizes: { ...SIZES, classes: 10 },
      batches: digitBatches(train, { microBatch, microBatches, replicas, order }),
      heldOut: (samples) => [...digitBatches(heldOut, { microBatch: samples, microBatches: 1 })],
    };
  },
});

/** Digits of MNIST with noise, and without. */
export const noisy: DataPart = defineData({
  name: "noisy-mnist",
  version: "1",
  sha256: DIGITS_SHA256,
  async open({ microBatch, microBatches, replicas, seed, announce }) {
    const { train, heldOut } = await loadDigits(announce);
    const order = shuffledOrder(train.labels.length, seed), noise = { deviation: DEVIATION, seed };
    const plan = { microBatch, microBatches, replicas, order };
    return {
      sizes: SIZES,
      batches: noisyDigitBatches(train, plan, noise),
      heldOut: (samples) => [
        ...noisyDigitBatches(heldOut, { microBatch: samples, microBatches: 1 }, HELD_OUT_NOISE),
      ],
    };
  },
});
