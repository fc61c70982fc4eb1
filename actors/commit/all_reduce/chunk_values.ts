/**
 * What one rank holds of a chunk while its plan is carried out: on the host, in memory that all ranks
 * share, or where its gradients lie on a device of its own.
 *
 * [Note: all or nothing] The host reads the gradients once, at the start, and writes them once, at the
 * end. Until then they are as the backward left them, so a step that is given up leaves no half sums.
 * On a device sums are made in place: whoever gives up a step zeroes its gradients.
 *
 * @module
 */

import { addLeftToRight, type Values } from "../host_sums.ts";
import type { GradientArray, ReducerOptions } from "./reducer.ts";

/** The arrays of each type of gradients. */
export const ARRAYS = { f32: Float32Array, f16: Float16Array } as const;

/** The values of a chunk in one rank. Places are counted from where the chunk begins. */
export interface ChunkValues {
  /**
   * The values of a range in an array to be sent; none where all ranks see them.
   *
   * @param isNext whether the next call wants the same ones.
   */
  take(
    start: number,
    end: number,
    isNext: boolean,
  ): GradientArray | undefined | Promise<GradientArray>;
  /** Adds values left to right; undefined is the place of this rank's own. */
  add(start: number, end: number, terms: readonly (Values | undefined)[]): Promise<void> | void;
  /** Puts the values of another rank in place of its own. */
  set(start: number, values: Values): void;
  /** Every sum is there. */
  end(): void;
}

/** A chunk, and whose gradients they are. */
export type ChunkOptions = ReducerOptions & {
  readonly chunk: { readonly offset: number; readonly length: number };
};

/** On the host. */
export function hostValues(options: ChunkOptions, own: GradientArray): ChunkValues {
  const { shared, rank, chunk: { offset } } = options;
  const values: Values = shared ? rowOf(options, shared, rank) : own;
  if (shared) values.set(own);
  return {
    take: (start, end) => shared ? undefined : own.slice(start, end),
    add(start, end, terms) {
      const place = values.subarray(start, end);
      addLeftToRight(place, terms.map((term) => term ?? place));
    },
    set: (start, others) => values.set(others, start),
    end: () => options.write(offset, shared ? values.slice() as GradientArray : own),
  };
}

/**
 * On a device. Of a chunk of n elements and p ranks, `direct` moves n to the host and 2n(p−1)/p from
 * it on average: each slice of others down and its sum up, and of its own the terms up and the sum
 * down.
 */
export function deviceValues(
  { sums, read, write, chunk: { offset } }: ChunkOptions,
): ChunkValues {
  /** What was read for the last message, and is wanted for the next one. */
  let kept: GradientArray | undefined;
  return {
    async take(start, end, isNext) {
      const values = kept ?? await read(offset + start, end - start);
      kept = isNext ? values : undefined;
      return isNext ? values.slice() : values;
    },
    add: (start, end, terms) =>
      end > start ? sums!.add(offset + start, terms as (GradientArray | undefined)[]) : undefined,
    set: (start, values) => write(offset + start, values as GradientArray),
    end() {},
  };
}

/**
 * A chunk in a rank's row of the shared memory.
 *
 * [Note: who touches what] Until the message `gather` of rank j, slice j of every row is read by
 * rank j alone, so rank j may put the sum where its own gradients were, and every other rank may
 * take it over into its own row afterwards. The messages order the accesses.
 */
export function rowOf(
  { size, dtype, chunk: { offset, length } }: ChunkOptions,
  shared: SharedArrayBuffer,
  rank: number,
): Values {
  const start = rank * shared.byteLength / size + offset * ARRAYS[dtype].BYTES_PER_ELEMENT;
  return dtype === "f32"
    ? new Float32Array(shared, start, length)
    : new Float16Array(shared, start, length);
}
