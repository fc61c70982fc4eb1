/** GEMS: two copies of the model in opposite directions, one micro-batch after the other. */

import { B, F } from "../action.ts";
import {
  type ClosedForm,
  defineSchedule,
  perWorker,
  type ScheduleOptions,
  type UniformCosts,
} from "../define.ts";

/**
 * The idle time holds for tB >= tF: the forward wave of each micro-batch follows the backward wave
 * of the one before, so T = D·tF + N·D·tB + (N - 1)tF.
 */
function gemsForm(
  { workers, microBatches }: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  const idle = (workers - 1) * (forward + microBatches * backward);
  return {
    ...(backward >= forward ? { idle } : {}),
    peakActivations: perWorker(workers, () => 1),
    weights: perWorker(workers, () => 2),
  };
}

/**
 * GEMS (Jain et al. 2020, "GEMS: GPU-Enabled Memory-Aware Model-Parallelism System for Distributed
 * DNN Training"), as the paper on Chimera describes it in section 2: even micro-batches run on the
 * down copy, odd ones on the up copy.
 */
export const gems = defineSchedule({
  name: "gems",
  reads: [],
  summary: "two copies of the model, one activation on each worker, mostly idle",
  closedForm: gemsForm,
  place: ({ workers }) => ({
    stages: workers,
    replicas: 2,
    workerOf: (stage, replica) => replica === 0 ? stage : workers - 1 - stage,
    replicaOf: (microBatch) => microBatch % 2,
  }),
  *order(worker, { workers, microBatches }) {
    for (let m = 0; m < microBatches; m++) {
      const stage = m % 2 === 0 ? worker : workers - 1 - worker;
      yield F(stage, m);
      yield B(stage, m);
    }
  },
});
