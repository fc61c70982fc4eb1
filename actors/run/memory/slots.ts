/**
 * How many micro-batches a schedule has in flight on a stage.
 *
 * @module
 */

import type { SliceSlots } from "../../../kernels/mod.ts";
import { type ActionList, analyze, parts, type Schedule } from "../../../schedules/mod.ts";

/**
 * The most micro-batches of one copy of a stage that have activations at a time; of sequences in
 * slices those of each slice, and micro-batches of which a slice has.
 *
 * @param pipe the replica of the pipeline within a data-parallel one.
 */
export function slotsOf(
  schedule: Schedule,
  worker: number,
  stage: number,
  pipe: number,
): number | SliceSlots {
  const { slices = 1 } = schedule;
  if (slices === 1) return wholeSlots(schedule, worker, stage, pipe);
  const of = schedule.pipelineOf.filter((one) => one === pipe).length;
  if (!schedule.lists || schedule.listPolicy?.name === "elastic") {
    return { slices: new Array<number>(slices).fill(of), contexts: of };
  }
  return sliceSlots(schedule, schedule.lists[worker]!, stage, pipe);
}

/** The same by walking the list of a worker. */
function sliceSlots(
  { slices = 1, pipelineOf }: Schedule,
  list: ActionList,
  stage: number,
  pipe: number,
): SliceSlots {
  const live = new Array<number>(slices).fill(0), peak = [...live], of = new Map<number, number>();
  let contexts = 0;
  for (const action of list) {
    for (const { kind, slice = 0, ...part } of parts(action)) {
      const { microBatch } = part;
      if (part.stage !== stage || pipelineOf[microBatch] !== pipe) continue;
      if (kind === "I" || kind === "R") continue;
      const change = kind === "F" ? 1 : -1, left = (of.get(microBatch) ?? 0) + change;
      live[slice]! += change;
      peak[slice] = Math.max(peak[slice]!, live[slice]!);
      if (left === 0) of.delete(microBatch);
      else of.set(microBatch, left);
      contexts = Math.max(contexts, of.size);
    }
  }
  return { slices: peak, contexts };
}

/** How many micro-batches the slots are, those of slices in parts. */
export const countSlots = (slots: number | SliceSlots): number =>
  typeof slots === "number"
    ? slots
    : slots.slices.reduce((sum, count) => sum + count, 0) / slots.slices.length;

function wholeSlots(schedule: Schedule, worker: number, stage: number, pipe: number): number {
  const { lists, listPolicy, injectionLimit, microBatches, pipelineOf, peaks } = schedule;
  if (!lists) return peaks?.[worker]?.most ?? Math.min(injectionLimit, microBatches);
  if (listPolicy?.name === "elastic") {
    // It may run ahead of its list, within the worker's limit.
    const limit = Math.ceil(listPolicy.activationLimit ?? analyzedPeak(schedule, worker));
    return Math.min(limit, pipelineOf.filter((one) => one === pipe).length);
  }
  // Without a flush the next step begins before this one ends: a micro-batch for each version.
  let live = 0, peak = schedule.updates === "every-backward" ? schedule.weightVersions[worker]! : 0;
  for (const action of lists[worker]!) {
    for (const part of parts(action)) {
      if (part.stage !== stage || pipelineOf[part.microBatch] !== pipe) continue;
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
