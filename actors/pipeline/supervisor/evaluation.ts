/**
 * Micro-batches whose losses are wanted, and nothing else: they go through the pipeline as fast as
 * it takes them.
 *
 * @module
 */

import type { Batch } from "../../../kernels/mod.ts";
import type { Reply } from "../../runtime/mod.ts";

/** At most one evaluation at a time. */
export interface Evaluations {
  /** Whether one is under way. */
  readonly isRunning: boolean;
  /** Begins one; `reply` gets the losses by micro-batch. */
  begin(microBatches: readonly Batch[], reply: Reply): void;
  /** A loss has come. */
  add(microBatch: number, losses: Float32Array): void;
}

/** @param limit micro-batches that may be in flight. */
export function openEvaluations(
  limit: number,
  inject: (microBatch: number, fields: Batch) => void,
): Evaluations {
  let current: {
    readonly microBatches: readonly Batch[];
    readonly reply: Reply;
    readonly losses: Float32Array[];
    injected: number;
    missing: number;
  } | undefined;
  const next = () => {
    const { microBatches, injected } = current!;
    if (injected < microBatches.length) inject(current!.injected++, microBatches[injected]!);
  };
  return {
    get isRunning() {
      return current !== undefined;
    },
    begin(microBatches, reply) {
      current = { microBatches, reply, losses: [], injected: 0, missing: microBatches.length };
      for (let i = 0; i < limit; i++) next();
    },
    add(microBatch, losses) {
      current!.losses[microBatch] = losses;
      next();
      if (--current!.missing > 0) return;
      current!.reply(current!.losses);
      current = undefined;
    },
  };
}
