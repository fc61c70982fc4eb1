/** GEMS: two copies of the model in opposite directions, one micro-batch after the other. */

import { B, F } from "../action.ts";
import { defineSchedule, formOf } from "../define.ts";

/**
 * GEMS (Jain et al. 2020, "GEMS: GPU-Enabled Memory-Aware Model-Parallelism System for Distributed
 * DNN Training"), as the paper on Chimera describes it in section 2: even micro-batches run on the
 * down copy, odd ones on the up copy.
 */
export const gems = defineSchedule({
  name: "gems",
  reads: [],
  summary: "two copies of the model, one activation on each worker, mostly idle",
  // The idle time holds for tB >= tF: the forward wave of each micro-batch follows the backward wave
  // of the one before, so T = D·tF + N·D·tB + (N - 1)tF.
  closedForm({ workers, microBatches }, { forward, backward }) {
    const idle = (workers - 1) * (forward + microBatches * backward);
    return formOf(workers, {
      ...backward >= forward && { idle },
      peak: () => 1,
      weights: () => 2,
    });
  },
  place: ({ workers }) => ({
    stages: workers,
    pipelineCount: 2,
    workerOf: (stage, pipeline) => pipeline === 0 ? stage : workers - 1 - stage,
    pipelineOf: (microBatch) => microBatch % 2,
  }),
  *order(worker, { workers, microBatches }) {
    for (let m = 0; m < microBatches; m++) {
      const stage = m % 2 === 0 ? worker : workers - 1 - worker;
      yield F(stage, m);
      yield B(stage, m);
    }
  },
});
