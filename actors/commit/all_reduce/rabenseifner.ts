/**
 * Rabenseifner's algorithm: reduce-scatter by recursive halving, all-gather by recursive doubling.
 *
 * Let c be the largest power of two up to the number of ranks. A rank beyond c first folds all its
 * gradients into those of the rank c below it, and has the sums from there at the end. The c others
 * pair up, at distance c/2 first: each sends the half that its partner keeps and adds to the half
 * that it keeps itself, down to one slice; the same way back they exchange sums.
 *
 * @module
 */

import type { Exchange, ReducePlan, SliceRange } from "./reduce_plan.ts";

/** The largest power of two up to the number of ranks. */
export function coreSize(size: number): number {
  return 1 << (31 - Math.clz32(size));
}

/** The plan of one rank. */
export function rabenseifnerPlan(rank: number, size: number): ReducePlan {
  const slices = coreSize(size), whole = { first: 0, end: slices };
  if (rank >= slices) {
    const peer = rank - slices;
    return {
      slices,
      exchanges: [
        { kind: "send", phase: "fold", to: peer, ...whole },
        { kind: "copy", phase: "unfold", from: [peer], ...whole },
      ],
    };
  }
  const scatter: Exchange[] = [], gather: Exchange[] = [];
  let range: SliceRange = whole;
  for (let distance = slices / 2; distance >= 1; distance /= 2) {
    const partner = rank ^ distance;
    const low = { first: range.first, end: range.first + distance };
    const high = { first: low.end, end: range.end };
    const [kept, given] = rank < partner ? [low, high] : [high, low];
    scatter.push(
      { kind: "send", phase: "scatter", to: partner, ...given },
      { kind: "sum", phase: "scatter", from: [partner], ...kept },
    );
    gather.unshift(
      { kind: "send", phase: "gather", to: partner, ...kept },
      { kind: "copy", phase: "gather", from: [partner], ...given },
    );
    range = kept;
  }
  const extra = rank + slices;
  if (extra >= size) return { slices, exchanges: [...scatter, ...gather] };
  return {
    slices,
    exchanges: [
      { kind: "sum", phase: "fold", from: [extra], ...whole },
      ...scatter,
      ...gather,
      { kind: "send", phase: "unfold", to: extra, ...whole },
    ],
  };
}
