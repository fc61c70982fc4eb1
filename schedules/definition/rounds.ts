/** Rounds of micro-batches through the chunks of a worker: what interleaved orders count in. */

import type { ScheduleOptions } from "./options.ts";
import { looped } from "./placements.ts";
import { requireOption } from "./require_option.ts";
import type { Place } from "./rule.ts";

/**
 * The micro-batches that run through one chunk before the next chunk has its turn: N over as many
 * rounds as there are whole groups of P, so P where P divides N, and all of them where N < P.
 */
export function perRound({ workers, microBatches }: ScheduleOptions): number {
  return microBatches / roundsOf(workers, microBatches);
}

const roundsOf = (workers: number, microBatches: number) =>
  Math.max(1, Math.floor(microBatches / workers));

/** The micro-batch and the turn of the chunk, from 0, of the k-th forward or backward of a worker. */
export function virtualStep(
  k: number,
  options: ScheduleOptions,
): { microBatch: number; turn: number } {
  const { chunks = 2 } = options, size = perRound(options);
  const inRound = k % (size * chunks), round = (k - inRound) / (size * chunks);
  return { microBatch: round * size + k % size, turn: Math.floor(inRound / size) };
}

/**
 * Stage s on worker s mod P, for orders of rounds.
 *
 * @throws {RangeError} if there is but one chunk, or if the rounds would not be of one size.
 */
export function placeRounds(name: string, options: ScheduleOptions): Place {
  const { workers, microBatches, chunks = 2 } = options;
  requireOption(name, "chunks", chunks, chunks >= 2, "at least 2");
  const rounds = roundsOf(workers, microBatches);
  requireOption(
    name,
    "microBatches",
    microBatches,
    microBatches % rounds === 0,
    `a multiple of their ${rounds} rounds, as many as there are whole groups of ${workers} workers`,
  );
  return looped(options);
}
