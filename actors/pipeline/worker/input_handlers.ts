/**
 * What a worker does with what arrives for an action, and what runs it.
 *
 * @module
 */

import { takeOffers } from "../../../schedules/mod.ts";
import type { Handlers } from "../../runtime/mod.ts";
import type { WorkerMessage } from "../protocol.ts";
import { arrive, evaluate, runAction } from "./compute.ts";
import type { WeightUpdater } from "./weight_updater.ts";
import { dispatch, type Worker } from "./worker_record.ts";

/** Inputs of actions, and Dispatch, which picks one. */
export function inputHandlers(
  worker: Worker,
  updater: WeightUpdater,
): Partial<Handlers<WorkerMessage>> {
  const { activity } = worker;
  return {
    Inject({ microBatch, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(worker, 0, microBatch, undefined, fields);
      arrive(worker, { kind: "F", stage: 0, microBatch }, { fields, at: activity.arrival() });
    },
    Activation({ stage, microBatch, tensor, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(worker, stage, microBatch, tensor, fields);
      arrive(worker, { kind: "F", stage, microBatch }, { tensor, fields, at: activity.arrival() });
    },
    Gradient({ stage, microBatch, tensor, half }) {
      const action = { kind: "B", stage, microBatch } as const;
      const arrived = half === undefined ? action : { ...action, half };
      arrive(worker, arrived, { tensor, fields: {}, at: activity.arrival() });
    },
    async Dispatch() {
      const { arrivals: { ready } } = worker;
      worker.isDispatching = false;
      const action = worker.policy!.next(ready);
      if (!action) return;
      takeOffers(ready, action);
      await runAction(worker, updater, action);
      dispatch(worker);
    },
  };
}
