/**
 * An all-reduce as data: what a rank sends and waits for, in order. It depends on rank and size
 * only, never on values or timing; `chunk_reduction.ts` carries it out.
 *
 * @module
 */

import type { ReducePhase } from "./reducer.ts";

/** A range of slices: `first` is in, `end` is not. */
export interface SliceRange {
  readonly first: number;
  readonly end: number;
}

/** One entry of a plan. */
export type Exchange =
  & SliceRange
  & { readonly phase: ReducePhase }
  & (
    /** Sends what this rank holds of a range. */
    | { readonly kind: "send"; readonly to: number }
    /** Waits for the range of these ranks; adds them and its own in copy order, rounding once. */
    | { readonly kind: "sum"; readonly from: readonly number[] }
    /** Waits for the range of a rank and takes it for its own. */
    | { readonly kind: "copy"; readonly from: readonly [number] }
  );

/** What one rank does for a chunk. */
export interface ReducePlan {
  /** Into how many nearly equal slices a chunk is cut; some are empty where it is short. */
  readonly slices: number;
  readonly exchanges: readonly Exchange[];
}
