/** Interleaved 1F1B (Megatron-LM): several chunks of the model on each worker, in turn. */

import { type Action, B, F } from "../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../definition/closed_form.ts";
import { defineSchedule } from "../definition/define_schedule.ts";
import type { ScheduleOptions } from "../definition/options.ts";
import { perRound, placeRounds, virtualStep } from "../definition/rounds.ts";

/**
 * Holds for any tF and tB. Two chunks fewer are live on each next worker; where there are fewer
 * micro-batches than workers, each that lacks costs a forward and a backward of all chunks but one.
 */
export function interleavedForm(
  options: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  const { workers, microBatches, chunks = 2 } = options;
  const gaps = workers - 1 + (chunks - 1) * Math.max(0, workers - microBatches);
  const chunksLive = (r: number) =>
    Math.min(microBatches * chunks, (chunks - 1) * perRound(options) + 2 * (workers - r) - 1);
  return {
    idle: gaps * (forward + backward) / chunks,
    peakActivations: perWorker(workers, (r) => chunksLive(r) / chunks),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
 * Clusters Using Megatron-LM", section 2.2.2): chunk c of worker r is stage cD + r. Where D does not
 * divide N, the rounds are larger, as PyTorch's Interleaved1F1B has them.
 */
export const interleaved = defineSchedule({
  name: "interleaved",
  reads: ["chunks"],
  summary: "1f1b with several chunks on each worker: less idle time, more messages",
  closedForm: interleavedForm,
  place: (options) => placeRounds("interleaved", options),
  *order(worker, options): Iterable<Action> {
    const { workers, microBatches, chunks = 2 } = options;
    const total = microBatches * chunks;
    const fill = 2 * (workers - 1 - worker) + (chunks - 1) * perRound(options);
    const warmUp = Math.min(total, fill);
    for (let k = 0; k < total + warmUp; k++) {
      if (k < total) {
        const { turn, microBatch } = virtualStep(k, options);
        yield F(turn * workers + worker, microBatch);
      }
      if (k >= warmUp) {
        const { turn, microBatch } = virtualStep(k - warmUp, options);
        yield B((chunks - 1 - turn) * workers + worker, microBatch);
      }
    }
  },
});
