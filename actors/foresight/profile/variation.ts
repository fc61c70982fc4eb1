/**
 * How durations of one action vary.
 *
 * @module
 */

/** Steps between the least and the greatest of the quantiles that are kept. */
const RANKS = 100;

/**
 * How durations of one action vary: quantiles of duration ÷ mean, over all actions.
 *
 * @param groups milliseconds of equal actions.
 */
export function variationOf(groups: Iterable<readonly number[]>): number[] {
  const factors: number[] = [];
  for (const ms of groups) {
    const mean = ms.reduce((sum, one) => sum + one, 0) / ms.length;
    if (ms.length > 1 && mean > 0) { for (const one of ms) factors.push(one / mean); }
  }
  if (factors.length === 0) return [];
  const sorted = factors.toSorted((a, b) => a - b);
  const quantiles = Array.from(
    { length: RANKS + 1 },
    (_, rank) => sorted[Math.round(rank / RANKS * (sorted.length - 1))]!,
  );
  // Draws lie evenly between neighbours: they are to have the mean of all, which is 1.
  const ends = (quantiles[0]! + quantiles[RANKS]!) / 2;
  const mean = (quantiles.reduce((sum, one) => sum + one, 0) - ends) / RANKS;
  return quantiles.map((one) => one / mean);
}
