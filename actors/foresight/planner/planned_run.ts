/** A candidate as it is predicted, and which of two is before the other. */

import type { WorkerTimes } from "../../../schedules/mod.ts";
import type { Candidate } from "./candidate.ts";
import type { ForecastStep } from "./forecast.ts";

/** A candidate as it is predicted. */
export interface PlannedRun extends Candidate {
  /** Milliseconds of a step. */
  readonly stepMs: number;
  /** Samples of a second, all replicas together. */
  readonly samplesPerSecond: number;
  /** Where the time goes, the mean of the workers: the parts add up to the step. */
  readonly parts: WorkerTimes;
  /** Share of the workers' time in which they wait for one another. */
  readonly bubble: number;
  /** Bytes of each worker of a replica. */
  readonly memoryBytes: readonly number[];
  /** Those of the fullest. */
  readonly peakBytes: number;
  /** Schedules with the same step and memory, cut in the same way. */
  readonly alike: readonly string[];
  /** Why it is behind the best one; absent of that. */
  readonly reason?: string;
  /** What makes the figures less certain. */
  readonly notes: readonly string[];
}

/** A candidate with its prediction. */
export function plannedRun(
  candidate: Candidate,
  { stepMs, simulated, variedMs = 0, notes = [] }: ForecastStep,
  memoryBytes: readonly number[],
  batch: number,
): PlannedRun {
  const { workers } = simulated;
  const mean = (name: keyof WorkerTimes) =>
    workers.reduce((sum, one) => sum + one[name], 0) / workers.length;
  // Who waits longer as durations vary, waits for others; the rest is what asks for a step. Drawn steps
  // of which none waits may come out shorter by a trifle.
  const evenMs = mean("bubbleMs"), bubbleMs = Math.max(0, evenMs + variedMs);
  const parts: WorkerTimes = {
    busyMs: mean("busyMs"),
    dispatchMs: mean("dispatchMs"),
    communicationMs: mean("communicationMs"),
    bubbleMs,
    closingMs: mean("closingMs") + stepMs - simulated.makespanMs - (bubbleMs - evenMs),
  };
  return {
    ...candidate,
    stepMs,
    samplesPerSecond: 1000 * batch / stepMs,
    parts,
    bubble: parts.bubbleMs / stepMs,
    memoryBytes,
    peakBytes: Math.max(...memoryBytes),
    alike: [],
    notes,
  };
}

/** The choice of a planned run alone. */
export function candidateOf(run: PlannedRun): Candidate {
  const { schedule, options, workers, replicas, microBatch, microBatches } = run;
  const { recompute, precision, bucketSize, coarsening, layout } = run;
  return {
    ...{ schedule, options, workers, replicas, microBatch, microBatches },
    ...{ recompute, precision, bucketSize, coarsening, layout },
  };
}

/** Times that differ by less are the same, but for how their parts were added. */
export const SAME = 1e-9;

export function byTime(a: PlannedRun, b: PlannedRun): number {
  const apart = a.stepMs - b.stepMs;
  return Math.abs(apart) > SAME * a.stepMs ? apart : a.peakBytes - b.peakBytes;
}

/** Whether two schedules are the same in all that is predicted, such as two orders of one action. */
export const isAlike = (a: PlannedRun, b: PlannedRun): boolean =>
  byTime(a, b) === 0 && KEYS.every((key) => a[key] === b[key]);

const KEYS = ["workers", "microBatch", "recompute", "precision"] as const;
