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

/** The whole groups of as many as there are workers; one where there are fewer. */
export function roundsOf(workers: number, count: number): number {
  return Math.max(1, Math.floor(count / workers));
}

/** The micro-batch and the turn of the chunk, from 0, of the k-th forward or backward of a worker. */
export function virtualStep(
  k: number,
  options: ScheduleOptions,
): { microBatch: number; turn: number } {
  const { chunks = 2 } = options, size = perRound(options);
  const inRound = k % (size * chunks), round = (k - inRound) / (size * chunks);
  return { microBatch: round * size + k % size, turn: Math.floor(inRound / size) };
}

/** What is shared out among rounds of one size. */
interface Shared {
  /** The option that counts it. */
  readonly option: string;
  /** How many there are. */
  readonly count: number;
  /** The rounds. */
  readonly rounds: number;
}

/**
 * Stage s on worker s mod P, for orders of rounds.
 *
 * @param shared What the rounds are made of; micro-batches unless given.
 * @throws {RangeError} if there is but one chunk, or if the rounds would not be of one size.
 */
export function placeRounds(name: string, options: ScheduleOptions, shared?: Shared): Place {
  const { workers, microBatches, chunks = 2 } = options;
  requireOption(name, "chunks", chunks, chunks >= 2, "at least 2");
  const { option, count, rounds } = shared ??
    { option: "microBatches", count: microBatches, rounds: roundsOf(workers, microBatches) };
  const must = `a multiple of their ${rounds} rounds, as many as fill the ${workers} workers`;
  requireOption(name, option, count, count % rounds === 0, must);
  return looped(options);
}
