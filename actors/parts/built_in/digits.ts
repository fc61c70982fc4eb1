/**
 * `--data mnist`: ten thousand handwritten digits.
 *
 * @module
 */

import {
  DIGIT_PIXELS,
  digitBatches,
  DIGITS_SHA256,
  loadDigits,
  shuffledOrder,
} from "../../../kernels/mod.ts";
import { type DataPart, defineData } from "../data_part.ts";

/** Digits of MNIST. */
export const data: DataPart = defineData({
  name: "mnist",
  version: "1",
  sha256: DIGITS_SHA256,
  async open({ microBatch, microBatches, replicas, seed, announce }) {
    const { train, heldOut } = await loadDigits(announce);
    const order = shuffledOrder(train.labels.length, seed);
    return {
      sizes: { inputs: DIGIT_PIXELS, classes: 10 },
      batches: digitBatches(train, { microBatch, microBatches, replicas, order }),
      heldOut: (samples) => [...digitBatches(heldOut, { microBatch: samples, microBatches: 1 })],
    };
  },
});
