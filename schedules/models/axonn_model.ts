/** AxoNN's formulas (sections V and VI): memory with and without offload, floating-point rate. */

import { checkModel } from "./link_model.ts";

/**
 * The most layer outputs that a worker keeps when every `every`-th is a checkpoint and the rest is
 * computed again: G·(N/(G·ac) + 1) + ac, in outputs of one layer for one micro-batch (section V-A,
 * where ac stands within the brackets although one micro-batch is recomputed at a time).
 *
 * @param layers N, of the whole model.
 * @param workers G_inter: the depth, and micro-batches in flight.
 * @param every ac: a checkpoint for so many layers.
 * @throws {RangeError} if a number is no whole one from 1.
 *
 * @example The least is at ac = sqrt(N)
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { checkpointedOutputs } from "@troupe/troupe/schedules";
 *
 * const least = [1, 2, 4, 8, 16].map((every) => checkpointedOutputs(64, 4, every));
 * deepStrictEqual(least, [69, 38, 24, 20, 24]);
 * ```
 */
export function checkpointedOutputs(layers: number, workers: number, every: number): number {
  checkCounts({ layers, workers, every });
  return workers * (layers / (workers * every) + 1) + every;
}

/**
 * The same as the paper prints it, G·(N/(G·ac) + 1 + ac), for the sake of comparison: as if every
 * micro-batch in flight were recomputed at once. Its least is at ac = sqrt(N/G).
 *
 * @throws {RangeError} if a number is no whole one from 1.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { printedOutputs } from "@troupe/troupe/schedules";
 *
 * strictEqual(printedOutputs(48, 24, 2), 96);
 * ```
 */
export function printedOutputs(layers: number, workers: number, every: number): number {
  checkCounts({ layers, workers, every });
  return workers * (layers / (workers * every) + 1 + every);
}

/**
 * Bytes of weights, gradients and Adam's states in mixed precision: 20 for each trained number; with
 * the optimizer's states offloaded to the host 4 for each, and 16 for each number of one bucket
 * (section V-B).
 *
 * @param parameters φ, trained numbers of the worker.
 * @param bucket numbers of a bucket; without one nothing is offloaded.
 * @throws {RangeError} if a number is negative.
 *
 * @example Offload saves a factor of five, less what the bucket takes
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { mixedPrecisionBytes } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual([mixedPrecisionBytes(2e9), mixedPrecisionBytes(2e9, 16e6)], [40e9, 8.256e9]);
 * ```
 */
export function mixedPrecisionBytes(parameters: number, bucket?: number): number {
  checkModel("the trained numbers", parameters, parameters >= 0, "at least 0");
  if (bucket === undefined) return 20 * parameters;
  checkModel("the numbers of a bucket", bucket, bucket >= 0, "at least 0");
  return 4 * parameters + 16 * bucket;
}

/** A transformer by what its floating-point operations depend on. */
export interface TransformerSizes {
  /** l: layers. */
  readonly layers: number;
  /** h: numbers of a token within the model. */
  readonly hidden: number;
  /** s: tokens of a sample. */
  readonly sequence: number;
  /** V: tokens that there are. */
  readonly vocabulary: number;
}

/**
 * Floating-point operations of one step over `samples`: 96·b·s·l·h²·(1 + s/6h + V/16lh) (section VI-D
 * after Narayanan et al.). It counts four forwards: one, one to compute it again, and two for the
 * backward; the head's three, as it is not computed again.
 *
 * @throws {RangeError} if a size is not more than 0.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { recomputedStepFlops } from "@troupe/troupe/schedules";
 *
 * const sizes = { layers: 1, hidden: 6, sequence: 36, vocabulary: 96 };
 * strictEqual(recomputedStepFlops(sizes, 1), 96 * 36 * 36 * 3);
 * ```
 */
export function recomputedStepFlops(sizes: TransformerSizes, samples: number): number {
  const { layers: l, hidden: h, sequence: s, vocabulary: V } = sizes;
  const all = { layers: l, hidden: h, sequence: s, vocabulary: V, samples };
  for (const [name, value] of Object.entries(all)) {
    checkModel(name, value, value > 0, "more than 0");
  }
  return 96 * samples * s * l * h ** 2 * (1 + s / (6 * h) + V / (16 * l * h));
}

function checkCounts(counts: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(counts)) {
    const isCount = Number.isInteger(value) && value >= 1;
    checkModel(`the number of ${name}`, value, isCount, "a whole number from 1");
  }
}
