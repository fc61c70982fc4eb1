/**
 * The pipeline without flushes: micro-batches of the next steps enter while those of this one are
 * still in flight.
 *
 * @module
 */

import { cutIntoStages, type StageState } from "../../../kernels/mod.ts";
import type { AsyncSupervisorMessage } from "../../pipeline/async_protocol.ts";
import { ASYNC_SUPERVISOR, type AsyncSupervisorInit } from "../../pipeline/async_supervisor.ts";
import type { AsyncWorkerInit } from "../../pipeline/async_worker.ts";
import type { Engine, EngineOptions } from "./engine.ts";
import type { WorkerFault } from "../../pipeline/worker/faults.ts";
import { stateOf } from "./pipeline.ts";
import type { StepOutcome } from "../../pipeline/protocol.ts";
import type { Isolation } from "../../pipeline/supervisor/supervisor.ts";
import { startSupervisor } from "./supervised.ts";
import { openTerms } from "../../pipeline/update_terms.ts";

/** What every worker is made from: worker s holds stage s. */
function workerInits(
  options: EngineOptions,
  fault: WorkerFault | undefined,
): AsyncWorkerInit[] {
  const { model, schedule, state, stage, device, link, isTraced } = options;
  return cutIntoStages(model, schedule.stages).map((program, worker) => ({
    worker,
    workers: schedule.workers,
    device,
    program,
    state: stateOf(program, state),
    stage: { ...stage, versions: schedule.weightVersions[worker]! },
    link,
    isTraced,
    fault,
  }));
}

/**
 * Starts a pipeline of PipeDream or PipeDream-2BW.
 *
 * @param isolate where the workers run.
 * @param fault what one of them is asked to suffer.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 */
export async function openAsyncPipeline(
  options: EngineOptions,
  isolate: Isolation,
  fault?: WorkerFault,
): Promise<Engine> {
  const { schedule: { workers, microBatches }, heapLimitMb } = options;
  // D − 1 micro-batches follow the last one of a step into the pipe; one step more, so that they
  // are there in time.
  const ahead = Math.ceil((workers - 1) / microBatches) + 1, terms = openTerms(options);
  const { ask, close } = await startSupervisor<AsyncSupervisorInit, AsyncSupervisorMessage>(
    options,
    ASYNC_SUPERVISOR,
    { workers: workerInits(options, fault), isolate, heapLimitMb },
    ahead,
  );
  return {
    ahead,
    step(request) {
      const { step, microBatches } = request;
      return ask<StepOutcome>({ type: "RunStep", step, microBatches, terms: terms.next(request) });
    },
    async drain() {
      terms.drained();
      await ask({ type: "Drain" });
    },
    evaluate: (microBatches) => ask<Float32Array[]>({ type: "Evaluate", microBatches }),
    save: () => ask<StageState>({ type: "Save" }),
    close,
  };
}
