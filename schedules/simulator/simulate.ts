/** Simulation of a step, and of the order in which a message-driven schedule runs its actions. */

import { eachLevel, heldBytes, type MemoryCurve } from "../analysis/memory.ts";
import { bytesOf, comeByTimes, freedBy } from "../analysis/skip_memory.ts";
import type { Costs } from "../costs.ts";
import { assertInput } from "../errors.ts";
import { withOrders } from "../from_lists.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { stageRoutes } from "../skip_edges.ts";
import {
  checkModel,
  modelOfCosts,
  type SimulatedStep,
  type StepModel,
  type WorkerTimes,
} from "./model.ts";
import { followsLists, type SimulatedWorker, StepRun } from "./step_run.ts";

/**
 * Simulates a step. Workers follow the policies of the schedule, as in training; the supervisor
 * injects `injectionLimit` micro-batches and one more for each that comes back; of actions that
 * become ready at the same time the lower micro-batch is first, then the backward.
 *
 * @throws {RangeError} if a figure of the model is not usable, or if the policies stop before the end
 * of the step.
 *
 * @example A late gradient
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, simulateStep } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 3, order: "fifo" } as const;
 * const schedule = createSchedule("message-driven", options);
 * const stage = { forwardMs: 1, backwardMs: 2 };
 * const network = { link: { latencyMs: 0.5 } };
 * const { makespanMs, workers } = simulateStep({ schedule, stages: [stage, stage], network });
 * strictEqual(makespanMs, 14);
 * strictEqual(workers[0]?.communicationMs, 1);
 * ```
 */
export function simulateStep(model: StepModel): SimulatedStep {
  checkModel(model);
  const run = new StepRun(model), { workers } = run, { name } = model.schedule;
  run.run();
  const stuck = workers.findIndex(({ policy }) => !policy.done);
  const received = `no action from it after ${workers[stuck]?.starts.length} actions`;
  const must = `the policy of worker ${stuck} must end the step`;
  assertInput(stuck < 0, `simulate ${name}`, must, received);
  const schedule = followsLists(model.schedule)
    ? model.schedule
    : withOrders(model.schedule, name, workers.map(({ taken = [] }) => taken));
  const computedMs = workers.reduce((most, { ends }) => Math.max(most, ends.at(-1) ?? 0), 0);
  const makespanMs = run.endedMs ?? computedMs;
  const timeline = {
    starts: workers.map(({ starts }) => new Float64Array(starts)),
    ends: workers.map(({ ends }) => new Float64Array(ends)),
    makespan: computedMs,
  };
  const dispatchMs = model.dispatchMs ?? 0;
  return {
    schedule,
    makespanMs,
    computedMs,
    timeline,
    workers: workers.map((worker) => timesOf(worker, dispatchMs, computedMs, makespanMs)),
    closing: workers.map(({ closing }) => closing.sort((a, b) => a.startMs - b.startMs)),
    ...memoryOf(model, schedule, timeline, workers),
  };
}

function timesOf(
  { starts, ends, communicationMs, closing }: SimulatedWorker,
  dispatchEachMs: number,
  computedMs: number,
  makespanMs: number,
): WorkerTimes {
  const busyMs = starts.reduce((sum, start, i) => sum + (ends[i]! - start), 0);
  const dispatchMs = starts.length * dispatchEachMs;
  let closingEarlyMs = 0;
  for (const { what, startMs, endMs } of closing) {
    if (what !== "reduce") closingEarlyMs += Math.max(0, Math.min(endMs, computedMs) - startMs);
  }
  return {
    busyMs,
    dispatchMs,
    communicationMs,
    // Rounding may give a small negative sum for a worker that never waits.
    bubbleMs: Math.max(0, computedMs - busyMs - dispatchMs - communicationMs - closingEarlyMs),
    closingMs: makespanMs - computedMs + closingEarlyMs,
  };
}

function memoryOf(
  { stages, loads }: StepModel,
  schedule: ListedSchedule,
  { starts, ends }: SimulatedStep["timeline"],
  workers: readonly SimulatedWorker[],
): Pick<SimulatedStep, "peakBytes" | "memoryOf"> {
  const { placement, weightVersions, lists } = schedule;
  const held = placement.map((copies, worker) =>
    heldBytes(copies.map(({ stage }) => stages[stage]!.memory), weightVersions[worker] ?? 1)
  );
  const routes = stageRoutes(schedule.stages, schedule.edges);
  const freed = routes && freedBy(routes, bytesOf(schedule.edges!));
  const levels = (worker: number, visit: Parameters<typeof eachLevel>[3]) => {
    const come = freed && comeByTimes(ends[worker]!, workers[worker]!.received);
    const skips = come && { come, freed }, loadOf = loads && ((m: number) => loads[m]!.bytes);
    const memoryOf = (stage: number) => stages[stage]!.memory;
    eachLevel(lists[worker]!, memoryOf, held[worker]!, visit, skips, loadOf);
  };
  const hasMemory = routes !== undefined || stages.some(({ memory }) => memory !== undefined);
  return {
    peakBytes: held.map((bytes, worker) => {
      let peak = bytes;
      if (hasMemory) levels(worker, (_index, _isEnd, level) => peak = Math.max(peak, level));
      return peak;
    }),
    memoryOf(worker): MemoryCurve {
      const timesMs = [0], bytes = [held[worker]!];
      levels(worker, (index, isEnd, level) => {
        timesMs.push((isEnd ? ends : starts)[worker]![index]!);
        bytes.push(level);
      });
      return { timesMs, bytes };
    },
  };
}

/**
 * The lists of a schedule: its own, or for a message-driven schedule the order in which its workers
 * handle the messages under the given costs, in a simulation as by {@linkcode simulateStep}.
 *
 * @throws {RangeError} if a cost is not usable, or if the policies stop before the end of the step.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, withLists } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 3, order: "fifo" } as const;
 * const schedule = createSchedule("message-driven", options);
 * strictEqual(String(withLists(schedule).lists[0]), "0F0,0F1,0B0,0F2,0B1,0B2");
 * ```
 */
export function withLists(schedule: Schedule, costs: Costs = {}): ListedSchedule {
  const { lists } = schedule;
  if (lists !== undefined) return { ...schedule, lists };
  return simulateStep(modelOfCosts(schedule, costs)).schedule;
}
