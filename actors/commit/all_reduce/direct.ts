/**
 * Direct reduce-scatter and all-gather: rank j owns slice j.
 *
 * Every rank sends slice j to rank j, which waits for all of them, adds them in copy order and
 * sends the sum to all others. A rank sends 2(p−1) messages with 2(p−1)/p of the chunk, as in a
 * ring, but in two rounds in place of 2(p−1), and an element's sum knows nothing of its slice.
 *
 * @module
 */

import type { Exchange, ReducePlan } from "./reduce_plan.ts";

/** The plan of one rank. */
export function directPlan(rank: number, size: number): ReducePlan {
  // Each rank begins with the one after it: no rank is everyone's first.
  const others = Array.from({ length: size - 1 }, (_, i) => (rank + 1 + i) % size);
  const slice = (index: number) => ({ first: index, end: index + 1 });
  const exchanges: Exchange[] = [
    ...others.map((to) => ({ kind: "send", phase: "scatter", to, ...slice(to) } as const)),
    { kind: "sum", phase: "scatter", from: others, ...slice(rank) },
    ...others.map((to) => ({ kind: "send", phase: "gather", to, ...slice(rank) } as const)),
    ...others.map((from) =>
      ({ kind: "copy", phase: "gather", from: [from], ...slice(from) }) as const
    ),
  ];
  return { slices: size, exchanges };
}
