/** Interleaved zero bubble: ZB-H1 with several chunks of the model on each worker, in turn. */

import { type Action, F, I, W } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { perRound, placeRounds, virtualStep } from "../../definition/rounds.ts";

/**
 * Holds for any durations and N >= D: the idle time of ZB-H1 over the number of chunks, which at
 * equal durations is what passes until the last worker has its first input. The activations are D
 * where D divides N.
 */
export function interleavedZeroBubbleForm(
  options: ScheduleOptions,
  { forward, input, weight }: UniformCosts,
): ClosedForm {
  const { workers, microBatches, chunks = 2 } = options;
  const idle = (workers - 1) * Math.max(forward, input, forward + input - weight) / chunks;
  const live = Math.min(microBatches * chunks, (chunks - 1) * perRound(options) + workers);
  return {
    ...(microBatches >= workers ? { idle } : { idleAtLeast: idle }),
    peakActivations: perWorker(workers, () => live / chunks),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.1) on the chunks of interleaved
 * 1F1B, as PyTorch's InterleavedZeroBubble orders it: a forward and an input backward in turn, and
 * from the r-th of these pairs on a weight backward of the pair r before it, r being the worker.
 */
export const interleavedZeroBubble = defineSchedule({
  name: "interleaved-zb",
  reads: ["chunks"],
  summary: "interleaved with split backward: fewer bubbles, D activations on every worker",
  closedForm: interleavedZeroBubbleForm,
  place: (options) => placeRounds("interleaved-zb", options),
  *order(worker, options): Iterable<Action> {
    const { workers, microBatches, chunks = 2 } = options;
    const total = microBatches * chunks;
    const fill = workers - 1 - worker + (chunks - 1) * perRound(options);
    const warmUp = Math.min(total, fill), late = warmUp + worker;
    const backward = (k: number) => {
      const { turn, microBatch } = virtualStep(k, options);
      return [(chunks - 1 - turn) * workers + worker, microBatch] as const;
    };
    for (let k = 0; k < total + late; k++) {
      if (k < total) {
        const { turn, microBatch } = virtualStep(k, options);
        yield F(turn * workers + worker, microBatch);
      }
      if (k >= warmUp && k < total + warmUp) yield I(...backward(k - warmUp));
      if (k >= late) yield W(...backward(k - late));
    }
  },
});
