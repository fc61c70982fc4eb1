/** The copies of a stage at the end of a step, and the chunks and buckets of its gradients. */

import type { Schedule } from "../schedule.ts";
import type { Closing, StageModel } from "./step_model.ts";

/** A copy of a stage on a worker. */
export interface Copy {
  readonly worker: number;
  readonly group: Group;
  /** Backwards that are still to run, in slices of micro-batches. */
  missing: number;
  /** Chunks started, and those whose sums are there. */
  started: number;
  complete: number;
}

/** The copies of a stage in one data-parallel replica. */
export interface Group {
  readonly stage: number;
  readonly copies: Copy[];
  /** The bytes of each bucket. */
  readonly buckets: readonly number[];
  readonly chunks: readonly Chunk[];
  votesMissing: number;
  isReducing: boolean;
}

/** Buckets `first` to `end` − 1 of a stage, and how many copies have come to where it is. */
export interface Chunk {
  readonly index: number;
  readonly first: number;
  readonly end: number;
  readonly bytes: number;
  startMs: number;
  arrived: number;
}

/** What a bucket of a stage takes to be stepped, its states fetched and put back. */
export function bucketMs(
  { optimizerMs = 0, gradientBytes = 0 }: StageModel,
  { offload }: Closing,
  bytes: number,
): number {
  const stepMs = gradientBytes === 0 ? optimizerMs : optimizerMs * bytes / gradientBytes;
  if (offload === undefined) return stepMs;
  const { link: { latencyMs, bytesPerMs = Infinity }, loadRatio, storeRatio } = offload;
  return stepMs + 2 * latencyMs + (loadRatio + storeRatio) * bytes / bytesPerMs;
}

/** The bytes of each bucket of a stage; one without bytes where it has no gradients. */
export function bucketsOf({ gradientBytes = 0 }: StageModel, { bucketBytes }: Closing): number[] {
  const most = bucketBytes ?? gradientBytes,
    count = Math.max(1, Math.ceil(gradientBytes / most) || 1);
  return Array.from({ length: count }, (_, b) => Math.min(most, gradientBytes - b * most));
}

/** The copies of a stage, none of which is placed yet. */
export function openGroup(stage: number, model: StageModel, closing: Closing): Group {
  const buckets = bucketsOf(model, closing), { coarsening = 1 } = closing;
  const chunks = Array.from({ length: Math.ceil(buckets.length / coarsening) }, (_, index) => {
    const first = index * coarsening, end = Math.min(first + coarsening, buckets.length);
    const bytes = buckets.slice(first, end).reduce((sum, size) => sum + size, 0);
    return { index, first, end, bytes, startMs: 0, arrived: 0 };
  });
  return { stage, copies: [], buckets, chunks, votesMissing: 0, isReducing: false };
}

/** Places the copies: that of a stage in a replica of the pipeline at `replica * stages + stage`. */
export function placeCopies(schedule: Schedule, groups: readonly Group[]): Copy[] {
  const microBatches = new Map<number, number>(), copies: Copy[] = [];
  for (const replica of schedule.replicaOf) {
    microBatches.set(replica, (microBatches.get(replica) ?? 0) + 1);
  }
  schedule.placement.forEach((held, worker) => {
    for (const { stage, replica } of held) {
      const group = groups[stage]!,
        missing = (microBatches.get(replica) ?? 0) * (schedule.slices ?? 1);
      const copy = { worker, group, missing, started: 0, complete: 0 };
      group.copies.push(copy);
      group.votesMissing++;
      copies[replica * schedule.stages + stage] = copy;
    }
  });
  return copies;
}
