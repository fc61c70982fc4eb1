/**
 * The pipeline: a supervisor and its workers, in one isolate or each worker in a Deno worker.
 *
 * @module
 */

import { cutIntoStages, type StageProgram, type StageState } from "../kernels/mod.ts";
import { type Engine, type EngineOptions, lossScaleOf } from "./engine.ts";
import { policyData } from "./policy_data.ts";
import type { StepOutcome, SupervisorMessage } from "./protocol.ts";
import { ActorFailedError, createSystem } from "./runtime/mod.ts";
import { SUPERVISOR } from "./supervisor.ts";
import type { WorkerInit } from "./worker.ts";

/** The part of a model's state that belongs to a stage. */
function stateOf(program: StageProgram, state: StageState): StageState {
  const names = program.layers.flatMap(({ prefix, program: index }) =>
    program.programs[index]!.parameters.map(({ name }) => prefix + name)
  );
  const weights = new Map(names.flatMap((name) => {
    const values = state.weights.get(name);
    return values ? [[name, values] as const] : [];
  }));
  const moments = new Map(
    [...state.moments].filter(([key]) => weights.has(key.slice(0, key.lastIndexOf(".")))),
  );
  return { weights, moments };
}

/**
 * Starts the pipeline.
 *
 * @param isolate where the workers run.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 */
export async function openPipeline(
  options: EngineOptions,
  isolate: "local" | "worker",
): Promise<Engine> {
  const { model, schedule, scheduleOptions, device, optimizer } = options;
  const programs = cutIntoStages(model, schedule.stages);
  const isSplit = schedule.lists?.some((list) => [...list].some(({ kind }) => kind === "W"));
  const backward = isSplit ? "split" : "whole";
  const workers = schedule.placement.map((held, worker): WorkerInit => ({
    worker,
    device,
    stages: held.map(({ stage }) => {
      const program = programs[stage]!;
      return { program, state: stateOf(program, options.state) };
    }),
    placement: schedule.placement,
    policy: policyData(schedule, scheduleOptions, worker),
    optimizer,
    backward,
    lossScale: lossScaleOf(options),
  }));
  const system = createSystem();
  const { injectionLimit } = schedule;
  const supervisor = system.spawn(SUPERVISOR, { workers, isolate, injectionLimit }, {
    id: "supervisor",
  });
  /** An answer, or the failure that keeps it from coming. */
  const ask = async <R>(message: SupervisorMessage): Promise<R> => {
    try {
      const answer = system.ask<SupervisorMessage, R>(supervisor, message, { timeoutMs: Infinity });
      return await Promise.race([answer, system.failed]);
    } catch (error) {
      if (!(error instanceof ActorFailedError)) throw error;
      // The supervisor's own words say which worker failed, and at what.
      throw new Error(error.failure.error.message, { cause: error });
    }
  };
  try {
    await ask({ type: "Start" });
  } catch (error) {
    await system.stop();
    throw error;
  }
  return {
    step: (step, microBatches, learningRate) =>
      ask<StepOutcome>({ type: "RunStep", step, microBatches, learningRate }),
    evaluate: (microBatches) => ask<Float32Array[]>({ type: "Evaluate", microBatches }),
    save: () => ask<StageState>({ type: "Save" }),
    close: () => system.stop(),
  };
}
