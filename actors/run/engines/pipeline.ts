/**
 * The pipeline: a supervisor and its workers, in one isolate or each worker in a Deno worker.
 *
 * @module
 */

import type { StageState } from "../../../kernels/mod.ts";
import { eagerStages } from "../../commit/eager_stages.ts";
import type { SupervisorMessage, WriteOutcome } from "../../pipeline/protocol.ts";
import type { StepOutcome } from "../../pipeline/step.ts";
import { openStepPlanner } from "../../pipeline/step_plan.ts";
import { SUPERVISOR } from "../../pipeline/supervisor/supervisor.ts";
import type { SupervisorInit } from "../../pipeline/supervisor/supervisor_init.ts";
import { UPDATE_POLICIES } from "../../pipeline/update_policy.ts";
import type { WorkerFault } from "../../pipeline/worker/faults.ts";
import type { PlaceName } from "../../runtime/mod.ts";
import { transportTo } from "../place.ts";
import type { Engine, EngineOptions } from "./engine.ts";
import { heldByStages } from "./held_by_stages.ts";
import { shardOrders, writtenShards } from "./shard_orders.ts";
import { startSupervisor } from "./supervised.ts";
import { withoutAliases } from "./tied_parameters.ts";
import { workerInits } from "./worker_inits.ts";

/**
 * Starts the pipeline.
 *
 * @param isolate where the workers run.
 * @param fault what one of them is asked to suffer.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 */
export async function openPipeline(
  options: EngineOptions,
  isolate: PlaceName,
  fault?: WorkerFault,
): Promise<Engine> {
  const { schedule, sync, clip, heapLimitMb, model, supervisor = SUPERVISOR, worker } = options;
  const policy = UPDATE_POLICIES[schedule.updates], ahead = policy.stepsAhead(schedule);
  const init: SupervisorInit = {
    workers: workerInits(options, isolate, fault),
    heapLimitMb: transportTo(isolate, options)?.limitsMemory ? heapLimitMb : undefined,
    isolate,
    injectionLimit: policy.inFlight(schedule),
    eagerStages: eagerStages(schedule, sync),
    updates: schedule.updates,
    clip,
    ...worker && { worker },
  };
  const { ask, close } = await startSupervisor<SupervisorInit, SupervisorMessage>(
    options,
    supervisor,
    init,
    Math.max(1, ahead),
  );
  const planner = openStepPlanner(options);
  // Journals, and systems of others, are told of a state by one message of each worker.
  const isTold = options.observer !== undefined || options.system !== undefined;
  const engine: Engine = {
    step: (request) => ask<StepOutcome>({ type: "RunStep", request, plan: planner.next(request) }),
    evaluate: (microBatches) => ask<Float32Array[]>({ type: "Evaluate", microBatches }),
    save: async () => withoutAliases(await ask<StageState>({ type: "Save" }), model.ties),
    ...!isTold && {
      held: heldByStages(
        options,
        (stage, parts) => ask<Float32Array>({ type: "Fetch", stage, parts }),
      ),
    },
    ...options.isSharded && {
      async write(folder, step) {
        const orders = shardOrders(options, folder);
        return writtenShards(await ask<WriteOutcome[]>({ type: "Write", orders, step }));
      },
    },
    close,
  };
  if (policy.isFlushed) return engine;
  const drain = async () => {
    planner.drained();
    await ask({ type: "Drain" });
  };
  return { ...engine, ahead, drain };
}
