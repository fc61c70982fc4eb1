/**
 * The ring: each rank sends to the next and hears from the one before.
 *
 * In p−1 rounds the sum of a slice grows by one rank a round; slice j starts at rank j and is whole
 * at rank j−1. In p−1 more rounds the whole slices go around.
 *
 * @module
 */

import type { Exchange, ReducePlan } from "./reduce_plan.ts";

/** The plan of one rank. */
export function ringPlan(rank: number, size: number): ReducePlan {
  const to = (rank + 1) % size, before = (rank + size - 1) % size;
  const slice = (index: number) => {
    const first = (index + size) % size;
    return { first, end: first + 1 };
  };
  const exchanges: Exchange[] = [];
  for (let round = 0; round < size - 1; round++) {
    exchanges.push(
      { kind: "send", phase: "scatter", to, ...slice(rank - round) },
      { kind: "sum", phase: "scatter", from: [before], ...slice(rank - round - 1) },
    );
  }
  for (let round = 0; round < size - 1; round++) {
    exchanges.push(
      { kind: "send", phase: "gather", to, ...slice(rank + 1 - round) },
      { kind: "copy", phase: "gather", from: [before], ...slice(rank - round) },
    );
  }
  return { slices: size, exchanges };
}
