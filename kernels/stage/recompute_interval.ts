/**
 * Activation checkpointing: which layers of a stage are computed again together.
 *
 * @module
 */

/** A run of layers whose activations are computed again together: from `from` to before `to`. */
export interface Segment {
  readonly from: number;
  readonly to: number;
}

/** The segments of a stage of `layers` layers, first layer first; one where there is no interval. */
export function segmentsOf(layers: number, interval = layers): Segment[] {
  return Array.from({ length: Math.ceil(layers / interval) }, (_, i) => ({
    from: i * interval,
    to: Math.min((i + 1) * interval, layers),
  }));
}

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
 * @param layers of the model, N.
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
