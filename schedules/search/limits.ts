/** The limits of a search: how much memory a schedule may take. */

import { analyze } from "../execution/analyze.ts";
import type { Costs } from "../execution/costs.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { activationParts, pipelineWorkers } from "../stages.ts";

/** A schedule that keeps the limits, and how long it takes. */
export interface Found {
  readonly schedule: ListedSchedule;
  readonly makespan: number;
}

/** What the schedules of a search are held to. */
export interface Limits {
  readonly costs: Costs;
  readonly activations: number;
  readonly weights: number;
}

/** For each worker, a limit in micro-batches of 1/P of the model as one of (stage, micro-batch). */
export function partLimits(schedule: Schedule, activations: number): number[] {
  return new Array(schedule.workers).fill(activationParts(schedule, activations));
}

/** Whether no worker of the schedule holds more weights than it may. */
export function keepsWeights(schedule: Schedule, { weights }: Limits): boolean {
  const share = pipelineWorkers(schedule) / schedule.stages;
  return schedule.placement.every((held, worker) =>
    held.length * share * (schedule.weightVersions[worker] ?? 1) <= weights + 1e-9
  );
}

/** The schedule and its time if it keeps the limits, else nothing. */
export function keepsLimits(schedule: Schedule, limits: Limits): Found[] {
  if (!keepsWeights(schedule, limits)) return [];
  const { makespan, peakActivations, schedule: listed } = analyze(schedule, limits.costs);
  const fits = peakActivations.every((peak) => peak <= limits.activations + 1e-9);
  return fits ? [{ schedule: listed, makespan }] : [];
}
