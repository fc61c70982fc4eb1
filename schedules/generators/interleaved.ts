/** Interleaved 1F1B (Megatron-LM): several chunks of the model on each worker, in turn. */

import { type Action, B, F } from "../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../definition/closed_form.ts";
import { defineSchedule } from "../definition/define_schedule.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { looped } from "../definition/placements.ts";
import { requireOption } from "../definition/require_option.ts";

/**
 * The k-th forward or backward of a worker: D micro-batches run through one chunk, then the same
 * D through the next; backwards meet the chunks in the opposite order.
 */
function virtualStep(
  k: number,
  { workers, chunks = 2 }: ScheduleOptions,
): { microBatch: number; chunk: number } {
  const inGroup = k % (workers * chunks);
  const group = (k - inGroup) / (workers * chunks);
  return {
    microBatch: group * workers + k % workers,
    chunk: Math.floor(inGroup / workers),
  };
}

/** Holds for any tF and tB. Two chunks fewer are live on each next worker. */
export function interleavedForm(
  { workers, microBatches, chunks = 2 }: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  const chunksLive = (r: number) =>
    Math.min(microBatches * chunks, workers * chunks + workers - 1 - 2 * r);
  return {
    idle: (workers - 1) * (forward + backward) / chunks,
    peakActivations: perWorker(workers, (r) => chunksLive(r) / chunks),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
 * Clusters Using Megatron-LM", section 2.2.2): chunk c of worker r is stage cD + r.
 */
export const interleaved = defineSchedule({
  name: "interleaved",
  reads: ["chunks"],
  summary: "1f1b with several chunks on each worker: less idle time, more messages",
  closedForm: interleavedForm,
  place(options) {
    const { workers, microBatches, chunks = 2 } = options;
    requireOption("interleaved", "chunks", chunks, chunks >= 2, "at least 2");
    requireOption(
      "interleaved",
      "microBatches",
      microBatches,
      microBatches % workers === 0,
      `a multiple of the ${workers} workers`,
    );
    return looped(options);
  },
  *order(worker, options): Iterable<Action> {
    const { workers, microBatches, chunks = 2 } = options;
    const total = microBatches * chunks;
    const warmUp = Math.min(total, 2 * (workers - 1 - worker) + (chunks - 1) * workers);
    for (let k = 0; k < total + warmUp; k++) {
      if (k < total) {
        const { chunk, microBatch } = virtualStep(k, options);
        yield F(chunk * workers + worker, microBatch);
      }
      if (k >= warmUp) {
        const { chunk, microBatch } = virtualStep(k - warmUp, options);
        yield B((chunks - 1 - chunk) * workers + worker, microBatch);
      }
    }
  },
});
