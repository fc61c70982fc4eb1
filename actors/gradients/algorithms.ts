/**
 * The algorithms of the all-reduce: for each rank, the exchanges that add a chunk.
 *
 * For a power of two p, ring and Rabenseifner move the same bytes, and Rabenseifner has fewer messages
 * in a row, so it is never slower. For other p its fold moves the chunk two more times, so the ring is
 * faster for large chunks. Chimera (section 3.2) launches a chunk as soon as it is final, so n is the
 * size of a chunk.
 *
 * @module
 */

import type { GradientSums } from "../../kernels/internal.ts";

/** Gradients in a message: an array with a separate buffer, so that it can be transferred. */
export type GradientArray = Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer>;

/**
 * The algorithm by which the copies of a stage add their gradients.
 *
 * - `direct`: reduce-scatter, then all-gather, each rank with each. Adds left to right in copy
 *   order, so the sum does not depend on chunks, slices or timing.
 * - `ring`: reduce-scatter, then all-gather, each rank with its neighbours.
 * - `rabenseifner`: recursive halving, then doubling (Rabenseifner 2004, the model of Chimera
 *   section 3.4).
 * - `collective`: the network adds. Each rank sends its chunks to itself; the transport gives them to
 *   the network instead, and delivers the sums as a `gather` message of the rank to itself.
 *
 * [Note: other orders, other sums] Ring and Rabenseifner add in an order that follows from slice
 * and number of ranks. Their sums have the same bits in every rank and every run of the same
 * chunks, but not the bits of `direct`. With p ranks the error of a sum is at most (p−1)·u·Σ|x| to
 * first order, where u is 2⁻²⁴ for f32, and 2⁻¹¹ for f16, which they round at every hop; `direct` has
 * the same bound in f32, and rounds f16 once. The order of a collective depends on the library of the
 * network, the size of a chunk and the places of the ranks; f16 travels as f32 and is rounded once.
 */
export type ReduceAlgorithm = "direct" | "ring" | "rabenseifner" | "collective";

/**
 * The phase of a message: `scatter` and `gather` are reduce-scatter and all-gather; `fold` and `unfold`
 * bring in the ranks beyond a power of two, and bring the sums back to them.
 */
export type ReducePhase = "fold" | "scatter" | "gather" | "unfold";

/** A message from one rank to another about a chunk. */
export interface ReduceMessage {
  /** Index of the chunk. */
  readonly chunk: number;
  /** The phase of the algorithm. */
  readonly phase: ReducePhase;
  /** Rank of the sender. */
  readonly from: number;
  /** The first slice of the message in its chunk. */
  readonly slice: number;
  /** The values; absent if they are in shared memory. */
  readonly values?: GradientArray;
}

/** Options of {@linkcode openReducer}. */
export interface ReducerOptions {
  /** Place of this copy in copy order, from 0. */
  readonly rank: number;
  /** Number of copies. */
  readonly size: number;
  /** Ranges of the flat gradient array, in elements; the same in every rank. */
  readonly chunks: readonly { readonly offset: number; readonly length: number }[];
  /** `fast` is ring or Rabenseifner for each chunk, by a model of their costs. */
  readonly algorithm: ReduceAlgorithm | "fast";
  /** Type of the gradients. */
  readonly dtype: "f32" | "f16";
  /**
   * Memory shared by all ranks, for `direct` only: `size` rows of equal length, row i for copy i, each
   * laid out like the flat gradient array.
   *
   * [Note: a row is free after the step] A rank may complete a chunk while another still reads its row,
   * so no rank may start the next step before all have ended this one.
   */
  readonly shared?: SharedArrayBuffer | undefined;
  /**
   * Adds gradients on a device with separate memory; the host adds unless given. Slices and chunks
   * then begin and end at its borders.
   */
  readonly sums?: Pick<GradientSums, "borders" | "add"> | undefined;
  /** Returns this copy's gradients of a range, in a new array. */
  read(offset: number, length: number): Promise<GradientArray>;
  /** Copies this copy's gradients from `offset` into shared memory. */
  copy(offset: number, into: Float32Array | Float16Array): Promise<void>;
  /**
   * Writes the sums of a whole chunk, once for each chunk; if a device adds, only the sums of other
   * ranks. The next step changes the array.
   */
  write(offset: number, values: Float32Array | Float16Array): void;
  /**
   * Sends to another rank, FIFO for each pair of ranks. The buffer of the values may be transferred.
   * This must return before the message, or a message that follows from it, is received.
   */
  send(to: number, message: ReduceMessage): void;
  /** Called once for each chunk, when its sums have been written. */
  onComplete(chunk: number): void;
}

/** A range of slices from `first` to `end` − 1. */
export interface SliceRange {
  readonly first: number;
  readonly end: number;
}

/** One exchange of a rank. */
export type Exchange =
  & SliceRange
  & { readonly phase: ReducePhase }
  & (
    /** Sends this rank's values of a range. */
    | { readonly kind: "send"; readonly to: number }
    /** Waits for the range of these ranks; adds them and its own in copy order, rounding once. */
    | { readonly kind: "sum"; readonly from: readonly number[] }
    /** Waits for the range of a rank and copies it. */
    | { readonly kind: "copy"; readonly from: readonly [number] }
  );

/** The exchanges of one rank for a chunk. */
export interface RankExchanges {
  /** The number of nearly equal slices of a chunk; some are empty if it is short. */
  readonly slices: number;
  readonly exchanges: readonly Exchange[];
}

/** Returns the exchanges of one rank; its message to itself is for the network. */
export function collectiveExchanges(rank: number): RankExchanges {
  const whole = { first: 0, end: 1 };
  return {
    slices: 1,
    exchanges: [
      { kind: "send", phase: "scatter", to: rank, ...whole },
      { kind: "copy", phase: "gather", from: [rank], ...whole },
    ],
  };
}

/** Returns the exchanges of one rank. */
export function directExchanges(rank: number, size: number): RankExchanges {
  // Each rank begins with the rank after it, so that all begin with different ones.
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

/** The largest power of two up to the number of ranks. */
const coreSize = (size: number): number => 1 << (31 - Math.clz32(size));

/** Returns the exchanges of one rank. */
export function rabenseifnerExchanges(rank: number, size: number): RankExchanges {
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

/**
 * α/β: the bytes that a link carries in the latency of a message, about 20 µs at 5 GB/s as over a TCP
 * connection of a fast network. For a p that is not a power of two, sums depend on this number, so it
 * is a constant of the program: all ranks and all runs agree on it.
 */
export const LATENCY_BYTES = 100_000;

/** Returns the faster algorithm for a chunk, by the model. */
export function chooseFast(size: number, bytes: number): "ring" | "rabenseifner" {
  const core = coreSize(size), folds = size === core ? 0 : 1;
  const ring = cost(2 * (size - 1), 2 * (size - 1) / size * bytes);
  const rabenseifner = cost(
    2 * (Math.log2(core) + folds),
    (2 * (core - 1) / core + 2 * folds) * bytes,
  );
  return ring < rabenseifner ? "ring" : "rabenseifner";
}

/** The time of consecutive messages, in units of α. */
const cost = (messages: number, bytes: number): number => messages + bytes / LATENCY_BYTES;

/** Returns the exchanges of one rank. */
export function ringExchanges(rank: number, size: number): RankExchanges {
  const to = (rank + 1) % size, before = (rank + size - 1) % size;
  const slice = (index: number) => {
    const first = (index + size) % size;
    return { first, end: first + 1 };
  };
  const around = (first: number, phase: ReducePhase, kind: "sum" | "copy") =>
    Array.from({ length: size - 1 }, (_, round) => first - round).flatMap((own): Exchange[] => [
      { kind: "send", phase, to, ...slice(own) },
      { kind, phase, from: [before], ...slice(own - 1) },
    ]);
  const exchanges = [...around(rank, "scatter", "sum"), ...around(rank + 1, "gather", "copy")];
  return { slices: size, exchanges };
}

/**
 * Returns the offset in a chunk at which slice `slice` of `slices` begins; the same in all ranks.
 *
 * If a device adds, slices are cut only at the borders of parameters. A nominal border within a
 * parameter moves to one of its ends, which changes from chunk to chunk: so the ranks take turns in
 * adding chunks of one parameter.
 *
 * @param index The index of the chunk.
 * @param borders The borders in elements of the flat gradients; anywhere unless given.
 */
export function sliceBorder(
  slice: number,
  slices: number,
  chunk: { readonly offset: number; readonly length: number },
  index: number,
  borders?: readonly number[],
): number {
  const nominal = slice * chunk.length / slices;
  if (!borders) return Math.floor(nominal);
  const at = chunk.offset + nominal, before = borders.findLast((border) => border <= at)!;
  if (at === before) return nominal;
  const after = borders.find((border) => border > at)!;
  const turn = (index % slices + 0.5) / slices;
  return (at - before < (1 - turn) * (after - before) ? before : after) - chunk.offset;
}
