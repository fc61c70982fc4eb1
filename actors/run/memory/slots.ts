/**
 * How many micro-batches a schedule has in flight on a stage.
 *
 * @module
 */

import { analyze, parts, type Schedule } from "../../../schedules/mod.ts";

/**
 * The most micro-batches of one copy of a stage that have activations at a time.
 *
 * @param pipe the replica of the pipeline within a data-parallel one.
 */
export function slotsOf(schedule: Schedule, worker: number, stage: number, pipe: number): number {
  const { lists, listPolicy, injectionLimit, microBatches, replicaOf, peaks } = schedule;
  if (!lists) return peaks?.[worker]?.most ?? Math.min(injectionLimit, microBatches);
  if (listPolicy?.name === "elastic") {
    // It may run ahead of its list, within the worker's limit.
    const limit = Math.ceil(listPolicy.activationLimit ?? analyzedPeak(schedule, worker));
    return Math.min(limit, replicaOf.filter((one) => one === pipe).length);
  }
  let live = 0, peak = 0;
  for (const action of lists[worker]!) {
    for (const part of parts(action)) {
      if (part.stage !== stage || replicaOf[part.microBatch] !== pipe) continue;
      if (part.kind === "F") peak = Math.max(peak, ++live);
      else if (part.kind !== "I") live -= part.half === undefined ? 1 : 0.5;
    }
  }
  return peak;
}

/** Whether a worker may hold fewer at its peak than {@linkcode slotsOf} says, as messages come. */
export function isBound({ lists, listPolicy, peaks }: Schedule, worker: number): boolean {
  if (lists) return listPolicy?.name === "elastic";
  return peaks === undefined || peaks[worker]!.least < peaks[worker]!.most;
}

/** The peak of a worker in (stage, micro-batch) activations. */
function analyzedPeak(schedule: Schedule, worker: number): number {
  const { peakActivations } = analyze(schedule);
  return peakActivations[worker]! * schedule.stages / schedule.workers;
}
