/**
 * Delta debugging.
 *
 * @module
 */

/**
 * The fewest items with which a test still fails, in the sense that leaving out any one of those
 * left makes it pass. Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, IEEE
 * TSE 28(2), 2002, section 3.
 *
 * @param items with all of them the test fails.
 * @param fails says whether the test fails with some of them, in the same order; undefined: there
 * is no more time, and the best so far is good enough.
 *
 * @example
 * ```ts
 * import { ddmin } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const items = Array.from({ length: 100 }, (_, n) => n);
 * const fails = (some: readonly number[]) => Promise.resolve(some.includes(7) && some.includes(93));
 * assert.deepEqual(await ddmin(items, fails), [7, 93]);
 * ```
 */
export async function ddmin<T>(
  items: readonly T[],
  fails: (some: readonly T[]) => Promise<boolean | undefined>,
): Promise<readonly T[]> {
  let best = items, parts = 2;
  if (await fails([])) return [];
  while (best.length >= 2) {
    const size = Math.ceil(best.length / parts);
    let found: readonly T[] | undefined, isOutOfTime = false;
    for (let start = 0; start < best.length && !found; start += size) {
      for (const some of tries(best, start, size, parts)) {
        const answer = await fails(some);
        isOutOfTime ||= answer === undefined;
        if (answer) {
          found = some;
          break;
        }
      }
    }
    if (found) {
      parts = found.length <= size ? 2 : Math.max(2, parts - 1);
      best = found;
    } else if (isOutOfTime || parts >= best.length) return best;
    else parts = Math.min(best.length, 2 * parts);
  }
  return best;
}

/** A part alone, and everything but that part. */
function tries<T>(items: readonly T[], start: number, size: number, parts: number) {
  const alone = items.slice(start, start + size);
  const rest = [...items.slice(0, start), ...items.slice(start + size)];
  // Of two halves each is the rest of the other.
  return parts === 2 ? [alone] : [alone, rest];
}
