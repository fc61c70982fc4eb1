/**
 * Messages that are put behind all others, and stay there.
 *
 * @module
 */

import type { Candidate } from "../../runtime/mod.ts";

/** Plain order, but for messages that are late. */
export interface LateOrder {
  /** Forgets who is late. */
  clear(): void;
  /** Puts a message behind all others, those that were put there before included. */
  put(candidate: Candidate): void;
  /** Index of the candidate whose turn it is. */
  first(candidates: readonly Candidate[]): number;
  /** Whether a message is late. */
  isLate(candidate: Candidate): boolean;
}

/** An order in which nobody is late. */
export function createLateOrder(): LateOrder {
  /** Those put back, by number of enqueuing, and in which order. */
  const late = new Map<number, number>();
  return {
    clear: () => late.clear(),
    put: ({ seq }) => void late.set(seq, late.size),
    isLate: ({ seq }) => late.has(seq),
    first(candidates) {
      if (late.size === 0) return 0;
      let best = 0, bestPlace = Infinity;
      for (let index = 0; index < candidates.length; index++) {
        const place = late.get(candidates[index]!.seq);
        if (place === undefined) return index;
        if (place < bestPlace) [best, bestPlace] = [index, place];
      }
      return best;
    },
  };
}
