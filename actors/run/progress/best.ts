/**
 * The best evaluation of held-out data, and how long it has been so.
 *
 * @module
 */

/** The best evaluation of a run so far, as a checkpoint keeps it. */
export interface Best {
  /** The step after which it was. */
  readonly step: number;
  /** Mean loss of the held-out micro-batches. */
  readonly loss: number;
  /** Evaluations since then, none of them better. */
  readonly since: number;
}

/**
 * The best evaluation after one more.
 *
 * @returns undefined where no loss was a number.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const first = nextBest(undefined, { step: 10, loss: 2.5 });
 * const worse = nextBest(first, { step: 20, loss: 2.5 });
 * assert.deepEqual(worse, { step: 10, loss: 2.5, since: 1 });
 * assert.deepEqual(nextBest(worse, { step: 30, loss: 2 }), { step: 30, loss: 2, since: 0 });
 * ```
 */
export function nextBest(
  best: Best | undefined,
  { step, loss }: Pick<Best, "step" | "loss">,
): Best | undefined {
  const isBetter = Number.isFinite(loss) && (best === undefined || loss < best.loss);
  if (isBetter) return { step, loss, since: 0 };
  return best && { ...best, since: best.since + 1 };
}
