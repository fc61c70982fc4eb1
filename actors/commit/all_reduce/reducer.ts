/**
 * What a reducer is made from, what it tells its peers, and what its owner may ask of it.
 *
 * @module
 */

import type { GradientSums } from "../../../kernels/mod.ts";

/** Gradients as they travel: an array with a buffer of its own, so that it can be transferred. */
export type GradientArray = Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer>;

/**
 * How the copies of a stage add their gradients.
 *
 * - `direct`: reduce-scatter, then all-gather, each rank with each. Adds left to right in copy
 *   order, so the sum does not depend on chunks, slices or timing.
 * - `ring`: reduce-scatter, then all-gather, each rank with its neighbours.
 * - `rabenseifner`: recursive halving, then doubling (Rabenseifner 2004, the model of Chimera
 *   section 3.4).
 * - `collective`: the network adds. Each rank sends its chunks to itself, and whoever carries them
 *   gives them to the network in place of that, and hands it the sums as a message `gather` of its
 *   own.
 *
 * [Note: other orders, other sums] Ring and Rabenseifner add in an order that follows from slice
 * and number of ranks. Their sums are the same bits in every rank and every run of the same
 * chunks, but not those of `direct`. With p ranks each is off the exact sum by at most
 * (p−1)·u·Σ|x| to first order, where u is 2⁻²⁴ for f32, and 2⁻¹¹ for f16, which they round at every
 * hop; `direct` has the same bound in f32, and rounds f16 once. What a collective adds in which
 * order the library of the network decides, by the size of a chunk and where ranks are; f16 travels
 * as f32 and is rounded once.
 */
export type ReduceAlgorithm = "direct" | "ring" | "rabenseifner" | "collective";

/**
 * Where a message belongs: `scatter` and `gather` are reduce-scatter and all-gather; `fold` and
 * `unfold` are the way in and out of the ranks beyond a power of two.
 */
export type ReducePhase = "fold" | "scatter" | "gather" | "unfold";

/** What one rank tells another about a chunk. */
export interface ReduceMessage {
  /** Index of the chunk. */
  readonly chunk: number;
  /** What the values are for. */
  readonly phase: ReducePhase;
  /** Rank of the sender. */
  readonly from: number;
  /** First slice of the chunk that the message is about. */
  readonly slice: number;
  /** The values; absent where they are in shared memory and the message says that they are there. */
  readonly values?: GradientArray;
}

/** What {@linkcode openReducer} takes. */
export interface ReducerOptions {
  /** Place of this copy in copy order, from 0. */
  readonly rank: number;
  /** Number of copies. */
  readonly size: number;
  /** Ranges of the flat gradient array, in elements; the same in every rank. */
  readonly chunks: readonly { readonly offset: number; readonly length: number }[];
  /** `fast` takes ring or Rabenseifner for each chunk, whichever a model of their cost prefers. */
  readonly algorithm: ReduceAlgorithm | "fast";
  /** Type of the gradients. */
  readonly dtype: "f32" | "f16";
  /**
   * Memory that all ranks see, for `direct` only: `size` rows of equal length, row i for copy i,
   * each laid out like the flat gradient array.
   *
   * [Note: a row is free after the step] A rank may be done with a chunk while another still reads
   * its row, so no rank may start the next step before all are done with this one.
   */
  readonly shared?: SharedArrayBuffer | undefined;
  /**
   * What adds where the gradients lie, on a device with memory of its own. Default: the host adds.
   * Slices then begin and end at its borders, as every chunk must.
   */
  readonly sums?: Pick<GradientSums, "borders" | "add"> | undefined;
  /** This copy's gradients of a range, in an array that nobody else holds. */
  read(offset: number, length: number): Promise<GradientArray>;
  /**
   * Puts the sums of a whole chunk back, once for each chunk, with an array to keep; where a device
   * adds, those that other ranks have made.
   */
  write(offset: number, values: GradientArray): void;
  /**
   * Sends to another rank, FIFO for each pair of ranks. The buffer of the values may be transferred.
   * The message must not be received, nor one that it leads to, before this returns.
   */
  send(to: number, message: ReduceMessage): void;
  /** Told once for each chunk, when its sums have been written. */
  onComplete(chunk: number): void;
}

/**
 * One copy's part in one all-reduce of all its chunks; the next step opens another. It is a
 * function of these calls alone: no clock, no randomness.
 */
export interface Reducer {
  /**
   * This copy's gradients of a chunk are final. Chunks may start in any order.
   *
   * @throws {RangeError} when there is no such chunk or it has been started.
   */
  start(chunk: number): Promise<void>;
  /**
   * A message of another rank has come. What comes before its chunk has started here is kept. Where
   * a device adds, the next call must wait for what this one returns.
   *
   * @throws {RangeError} when no such message is due, it came before or has another length.
   * @throws {TypeError} when its values are of another type.
   */
  receive(message: ReduceMessage): Promise<void> | void;
  /** Whether the sums of a chunk have been written. */
  isComplete(chunk: number): boolean;
}
