/**
 * The network adds: every rank gives it the whole chunk and gets the sums back.
 *
 * @module
 */

import type { ReducePlan } from "./reduce_plan.ts";

/** The plan of one rank; what it sends to itself is for the network. */
export function collectivePlan(rank: number): ReducePlan {
  const whole = { first: 0, end: 1 };
  return {
    slices: 1,
    exchanges: [
      { kind: "send", phase: "scatter", to: rank, ...whole },
      { kind: "copy", phase: "gather", from: [rank], ...whole },
    ],
  };
}
