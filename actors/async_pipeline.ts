/**
 * The pipeline without flushes: micro-batches of the next steps enter while those of this one are
 * still in flight.
 *
 * @module
 */

import { cutIntoStages, type StageState } from "../kernels/mod.ts";
import type { AsyncSupervisorMessage } from "./async_protocol.ts";
import { ASYNC_SUPERVISOR, type AsyncSupervisorInit } from "./async_supervisor.ts";
import type { AsyncWorkerInit } from "./async_worker.ts";
import type { Engine, EngineOptions } from "./engine.ts";
import { askUnlessFailed } from "./failing_ask.ts";
import { stateOf } from "./pipeline.ts";
import type { StepOutcome } from "./protocol.ts";
import { ActorFailedError, createSystem } from "./runtime/mod.ts";
import type { Isolation } from "./supervisor.ts";
import { openTerms } from "./update_terms.ts";

/** What every worker is made from: worker s holds stage s. */
function workerInits(options: EngineOptions): AsyncWorkerInit[] {
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
  }));
}

/**
 * Starts a pipeline of PipeDream or PipeDream-2BW.
 *
 * @param isolate where the workers run.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 */
export async function openAsyncPipeline(
  options: EngineOptions,
  isolate: Isolation,
): Promise<Engine> {
  const { workers, microBatches } = options.schedule;
  const init: AsyncSupervisorInit = { workers: workerInits(options), isolate };
  const { seed, observer } = options;
  const system = options.system ?? createSystem({ seed, ...observer && { observer } });
  const supervisor = system.spawn(ASYNC_SUPERVISOR, init, { id: "supervisor" });
  // A system that was given outlives the pipeline.
  const close = () => options.system ? system.stop(supervisor) : system.stop();
  const terms = openTerms(options);
  /** An answer, or the failure that keeps it from coming. */
  const ask = async <R>(message: AsyncSupervisorMessage): Promise<R> => {
    try {
      return await askUnlessFailed<AsyncSupervisorMessage, R>(system, supervisor, message);
    } catch (error) {
      if (!(error instanceof ActorFailedError)) throw error;
      // The supervisor's own words say which worker failed, and at what.
      throw new Error(error.failure.error.message, { cause: error });
    }
  };
  try {
    await ask({ type: "Start" });
  } catch (error) {
    await close();
    throw error;
  }
  return {
    // D − 1 micro-batches follow the last one of a step into the pipe; one step more, so that they
    // are there in time.
    ahead: Math.ceil((workers - 1) / microBatches) + 1,
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
