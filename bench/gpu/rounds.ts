/**
 * How often something runs where nobody knows how fast it is.
 *
 * @module
 */

import type { RoundOptions } from "../support/timing.ts";

const FEWEST = 3, MOST = 25;

/** As many rounds as are likely to fit, within bounds; disturbed ones may double them. */
export function roundsWithin(budgetMs: number, roundMs: number): RoundOptions {
  const rounds = Math.min(Math.max(Math.floor(budgetMs / roundMs), FEWEST), MOST);
  return { rounds, warmup: rounds > FEWEST ? 2 : 0, isAlone: rounds > FEWEST };
}
