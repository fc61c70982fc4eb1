/** The limits of a search: how much memory a schedule may take. */

import type { ScheduleOptions } from "../definition/options.ts";
import { analyze } from "../execution/analyze.ts";
import type { Costs } from "../execution/costs.ts";
import { withLists } from "../execution/simulate.ts";
import { withRecomputation } from "../memory/recomputation.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { activationParts, pipelineWorkers } from "../stages.ts";

/** A schedule that keeps the limits. */
export interface Found {
  /** The schedule, without recomputations. */
  readonly schedule: ListedSchedule;
  /** The time of a step, with the recomputations that the search is for. */
  readonly makespan: number;
}

/** What the schedules of a search are held to. */
export interface Limits {
  readonly costs: Costs;
  readonly activations: number;
  readonly weights: number;
  readonly isRecomputed?: boolean;
  readonly found?: ScheduleOptions["found"];
}

/**
 * For each worker, a limit in micro-batches of 1/P of the model as one of (stage, micro-batch).
 *
 * @param isRecomputed whether activations live from a recomputation on: forwards then have no limit.
 */
export function partLimits(
  schedule: Schedule,
  activations: number,
  isRecomputed = false,
): number[] {
  const parts = isRecomputed ? Infinity : activationParts(schedule, activations);
  return new Array(schedule.workers).fill(parts);
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
  const listed = withLists(schedule, limits.costs);
  const run = limits.isRecomputed ? withRecomputation(listed) : listed;
  const { makespan, peakActivations } = analyze(run, limits.costs);
  const fits = peakActivations.every((peak) => peak <= limits.activations + 1e-9);
  if (!fits) return [];
  limits.found?.(run, makespan);
  return [{ schedule: listed, makespan }];
}
