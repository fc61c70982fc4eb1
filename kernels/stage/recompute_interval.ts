/**
 * Activation checkpointing: which layers of a stage are computed again together.
 *
 * @module
 */

import type { Layer } from "../layers/layer.ts";

/** A run of layers whose activations are computed again together: from `from` to before `to`. */
export interface Segment {
  readonly from: number;
  readonly to: number;
}

/**
 * The segments of a stage, first layer first; one where there is no interval. Layers in a row of one
 * block count as one, so that the interval is in what `--layers` counts, wherever blocks are cut.
 */
export function segmentsOf(
  layers: readonly Pick<Layer, "block">[],
  interval = layers.length,
): Segment[] {
  const begins = layers.flatMap(({ block }, i) =>
    block !== undefined && block === layers[i - 1]?.block ? [] : [i]
  );
  const starts = begins.filter((_, nth) => nth % interval === 0);
  return starts.map((from, i) => ({ from, to: starts[i + 1] ?? layers.length }));
}

/** How many layers a user counts: those in a row of one block are one. */
export const countBlocks = (layers: readonly Pick<Layer, "block">[]): number =>
  segmentsOf(layers, 1).length;

/**
 * The interval of `recomputeInterval` that needs least memory.
 *
 * AxoNN (section V-A) counts activations of a worker as G·(N/(G·ac) + 1 + ac) for N layers on G
 * workers, G micro-batches in flight and an interval ac, and takes ac = √N for its best. That is the
 * minimum of another formula: only one micro-batch is recomputed at a time, so ac counts once,
 * G·(N/(G·ac) + 1) + ac. Of this one √N is the minimum (of the printed one √(N/G) is). An interval
 * beyond a worker's N/G layers changes nothing, so the result is the whole number from 1 to ⌈N/G⌉
 * whose value is least, the smaller of two equal ones.
 *
 * The formula takes what a layer computes for as large as its input. So it is under the policy
 * `full`; under `none` a layer of GPT-2 computes about twenty times its input, and a smaller interval
 * needs less: `activationBytes` tells the bytes of each.
 *
 * @param layers of the model, N; a block counts as one.
 * @param workers of a pipeline, G.
 * @throws {RangeError} when one is not a positive integer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { bestRecomputeInterval } from "@troupe/troupe/kernels";
 *
 * assert.equal(bestRecomputeInterval(24, 2), 5);
 * assert.equal(bestRecomputeInterval(24, 8), 3); // a worker has no more than 3 layers
 * ```
 */
export function bestRecomputeInterval(layers: number, workers: number): number {
  for (const [name, value] of Object.entries({ layers, workers })) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw new RangeError(
      `Cannot choose a recompute interval: ${name} must be a positive integer, received ${value}`,
    );
  }
  const root = Math.floor(Math.sqrt(layers));
  // N/ac + ac is less at √N rounded up than at √N rounded down exactly when N > product of both.
  const nearest = layers > root * (root + 1) ? root + 1 : root;
  return Math.min(nearest, Math.ceil(layers / workers));
}

/** Checks the interval at the door. */
export function checkInterval(interval: number | undefined): void {
  if (interval === undefined || (Number.isSafeInteger(interval) && interval >= 1)) return;
  throw new RangeError(
    `Cannot recompute activations: the interval must be a positive integer, received ${interval}`,
  );
}
