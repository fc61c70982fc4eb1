/**
 * Where a chunk is cut into slices.
 *
 * Where p is a power of two both move the same and Rabenseifner has fewer messages in a row: it is
 * never the slower one. Elsewhere its fold moves the chunk twice more, so the ring wins from a size
 * on. Chunks are what Chimera (section 3.2) launches as soon as they are final, so n is a chunk.
 *
 * @module
 */

import type { GradientSums } from "../../kernels/internal.ts";

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

/** The largest power of two up to the number of ranks. */
function coreSize(size: number): number {
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

/**
 * α/β: how many bytes a link carries in the time that a message takes at least. Of the order of
 * 20 µs at 5 GB/s, a TCP connection of a fast network. The sums depend on this number where p is no
 * power of two, so it is a constant of the program and not measured at run time: all ranks and all
 * runs agree on it.
 */
export const LATENCY_BYTES = 100_000;

/** The algorithm that the model prefers for a chunk of so many bytes. */
export function chooseFast(size: number, bytes: number): "ring" | "rabenseifner" {
  const core = coreSize(size), folds = size === core ? 0 : 1;
  const ring = cost(2 * (size - 1), 2 * (size - 1) / size * bytes);
  const rabenseifner = cost(
    2 * (Math.log2(core) + folds),
    (2 * (core - 1) / core + 2 * folds) * bytes,
  );
  return ring < rabenseifner ? "ring" : "rabenseifner";
}

/** Time of messages in a row, in units of α. */
function cost(messages: number, bytes: number): number {
  return messages + bytes / LATENCY_BYTES;
}

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

/**
 * Where slice `slice` of `slices` begins in a chunk, counted from where the chunk begins; all ranks
 * agree on it.
 *
 * Where a device adds, slices are cut at the borders of parameters only. A nominal border within a
 * parameter moves to one end of it, chunk by chunk to another one: so the ranks take turns in adding
 * chunks of one parameter.
 *
 * @param index of the chunk.
 * @param borders in elements of the flat gradients; anywhere unless given.
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
