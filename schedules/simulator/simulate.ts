/** Simulates a schedule whose order depends on arrival: which action each worker takes, when. */

import { eachLevel, heldBytes, type MemoryCurve } from "../analysis/memory.ts";
import { bytesOf, comeByTimes, freedBy } from "../analysis/skip_memory.ts";
import type { Costs } from "../costs.ts";
import { withOrders } from "../from_lists.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { stageWays } from "../skip_edges.ts";
import {
  checkModel,
  type ClosingSpan,
  modelOfCosts,
  type SimulatedStep,
  type StepModel,
  type WorkerTimes,
} from "./model.ts";
import { followsLists, type SimulatedWorker, StepRun } from "./step_run.ts";

/**
 * Simulates a step. Workers follow the policies of the schedule, as in training; the supervisor
 * injects `injectionLimit` micro-batches and one more for each that comes back; of actions that
 * become ready at the same moment the lower micro-batch counts as first, then the backward.
 *
 * @throws {RangeError} if a figure of the model is not usable, or if the policies stop before the step
 * is done.
 *
 * @example A late gradient
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, simulateStep } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("message-driven", { workers: 2, microBatches: 3 });
 * const stage = { forwardMs: 1, backwardMs: 2 };
 * const network = { link: { latencyMs: 0.5 } };
 * const { makespanMs, workers } = simulateStep({ schedule, stages: [stage, stage], network });
 * strictEqual(makespanMs, 14);
 * strictEqual(workers[0]?.communicationMs, 1);
 * ```
 */
export function simulateStep(model: StepModel): SimulatedStep {
  checkModel(model);
  const run = new StepRun(model), { workers } = run;
  run.run();
  refuseUndone(model.schedule, workers);
  const schedule = listed(model.schedule, workers);
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

function refuseUndone({ name }: Schedule, workers: readonly SimulatedWorker[]): void {
  const stuck = workers.findIndex(({ policy }) => !policy.done);
  if (stuck < 0) return;
  throw new RangeError(
    `Cannot simulate ${name}: the policy of worker ${stuck} must end the ` +
      `step, received no action from it after ${workers[stuck]!.starts.length} actions`,
  );
}

/** The schedule with the orders that were taken. */
function listed(schedule: Schedule, workers: readonly SimulatedWorker[]): ListedSchedule {
  if (followsLists(schedule)) return schedule;
  return withOrders(schedule, schedule.name, workers.map(({ taken = [] }) => taken));
}

function timesOf(
  { starts, ends, communicationMs, closing }: SimulatedWorker,
  dispatchEachMs: number,
  computedMs: number,
  makespanMs: number,
): WorkerTimes {
  let busyMs = 0;
  for (let i = 0; i < starts.length; i++) busyMs += ends[i]! - starts[i]!;
  const dispatchMs = starts.length * dispatchEachMs;
  const closingEarlyMs = closing.reduce((sum, span) => sum + busyBefore(span, computedMs), 0);
  return {
    busyMs,
    dispatchMs,
    communicationMs,
    // What sums leave of a worker that never waits may be below 0.
    bubbleMs: Math.max(0, computedMs - busyMs - dispatchMs - communicationMs - closingEarlyMs),
    closingMs: makespanMs - computedMs + closingEarlyMs,
  };
}

/** How long a part of the closing kept its worker busy before a time. */
function busyBefore({ what, startMs, endMs }: ClosingSpan, timeMs: number): number {
  return what === "reduce" ? 0 : Math.max(0, Math.min(endMs, timeMs) - startMs);
}

function memoryOf(
  { stages }: StepModel,
  schedule: ListedSchedule,
  { starts, ends }: SimulatedStep["timeline"],
  workers: readonly SimulatedWorker[],
): Pick<SimulatedStep, "peakBytes" | "memoryOf"> {
  const { placement, weightVersions, lists } = schedule;
  const held = placement.map((copies, worker) =>
    heldBytes(copies.map(({ stage }) => stages[stage]!.memory), weightVersions[worker] ?? 1)
  );
  const ways = stageWays(schedule.stages, schedule.edges);
  const freed = ways && freedBy(ways, bytesOf(schedule.edges!));
  const levels = (worker: number, visit: Parameters<typeof eachLevel>[3]) => {
    const come = freed && comeByTimes(ends[worker]!, workers[worker]!.received);
    const skips = come && { come, freed };
    eachLevel(lists[worker]!, (stage) => stages[stage]!.memory, held[worker]!, visit, skips);
  };
  const hasMemory = ways !== undefined || stages.some(({ memory }) => memory !== undefined);
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
 * The lists of a schedule: its own, or for a message-driven one the order in which its workers
 * take the messages under the given costs. The supervisor injects `injectionLimit` micro-batches
 * and one more for each that comes back; of actions that become ready at the same moment the
 * lower micro-batch counts as first, then the backward.
 *
 * @throws {RangeError} if a cost is not usable, or if the policies stop before the step is done.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, withLists } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("message-driven", { workers: 2, microBatches: 3 });
 * strictEqual(String(withLists(schedule).lists[0]), "0F0,0F1,0B0,0F2,0B1,0B2");
 * ```
 */
export function withLists(schedule: Schedule, costs: Costs = {}): ListedSchedule {
  const { lists } = schedule;
  if (lists !== undefined) return { ...schedule, lists };
  return simulateStep(modelOfCosts(schedule, costs)).schedule;
}
