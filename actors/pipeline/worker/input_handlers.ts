/**
 * What a worker does with what arrives for an action, and what runs it.
 *
 * @module
 */

import { sliceBatch } from "../../../kernels/mod.ts";
import { takeOffers } from "../../../schedules/mod.ts";
import type { Handlers } from "../../runtime/mod.ts";
import { cut, mapPassed } from "../links/halves.ts";
import type { WorkerMessage } from "../protocol.ts";
import { arrive, evaluate, messagesFor, runAction } from "./compute.ts";
import type { WeightUpdater } from "./weight_updater.ts";
import { slicingOf } from "./worker_init.ts";
import { dispatch, type Worker } from "./worker_record.ts";

/** Inputs of actions, and Dispatch, which picks one. */
export function inputHandlers(
  worker: Worker,
  updater: WeightUpdater,
): Partial<Handlers<WorkerMessage>> {
  const { activity, init: { halves } } = worker, slicing = slicingOf(worker.init);
  return {
    Inject({ microBatch, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(worker, 0, microBatch, { fields });
      const action = { kind: "F", stage: 0, microBatch } as const, at = activity.arrival();
      if (!slicing) return arrive(worker, action, { fields, at });
      for (let slice = 0; slice < slicing.slices; slice++) {
        arrive(worker, { ...action, slice }, { fields: sliceBatch(fields, slicing, slice), at });
      }
    },
    Activation({ stage, microBatch, slice, tensor, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(worker, stage, microBatch, { tensor, fields });
      const action = { kind: "F", stage, microBatch, ...slice !== undefined && { slice } } as const;
      const arrival = { tensor, fields, at: activity.arrival() };
      arrive(worker, action, arrival, messagesFor(worker, action));
    },
    Gradient({ stage, microBatch, tensor, half, slice }) {
      const part = { ...half !== undefined && { half }, ...slice !== undefined && { slice } };
      const action = { kind: "B", stage, microBatch, ...part } as const, fields = {};
      const messages = messagesFor(worker, action), at = activity.arrival();
      if (messages === 1 || halves === 1 || half !== undefined) {
        return arrive(worker, action, { tensor, fields, at }, messages);
      }
      // Others may bring halves of theirs: what is whole waits as two halves, too.
      for (const half of [0, 1] as const) {
        const own = mapPassed(tensor, (array) => cut(array, half, 2));
        arrive(worker, { ...action, half }, { tensor: own, fields, at }, messages);
      }
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
