/**
 * A machine as a paper used it: what is stated of it, what its makers' documents say, and what is
 * assumed or fitted, each figure with its source.
 *
 * @module
 */

import type { Link } from "../../../../schedules/mod.ts";

/** Where a figure comes from. */
export interface Sourced<T> {
  readonly value: T;
  /**
   * `stated` by the paper; of a public `document`; `assumed`; or `fitted` to a figure of the paper,
   * which is then no prediction.
   */
  readonly by: "stated" | "document" | "assumed" | "fitted";
  /** The place, the document, the reason, or the figure that it is fitted to. */
  readonly source: string;
}

/** One machine as a paper used it. */
export interface PaperMachine {
  readonly name: string;
  /** GPUs of the whole machine that the paper used at most. */
  readonly gpus: number;
  /** GPUs of a node. */
  readonly nodeSize: Sourced<number>;
  /** Bytes of a GPU's memory that training can use. */
  readonly memoryBytes: Sourced<number>;
  /** Floating-point operations per second at the precision of the paper. */
  readonly peakFlops: Sourced<number>;
  /** The share of it that layers reach with many tokens. */
  readonly topShare: Sourced<number>;
  /** Tokens of a micro-batch with which layers reach half of that. */
  readonly halfTokens: Sourced<number>;
  /** Bytes kept of a layer, in those of the count that all implementations share. */
  readonly activationFactor: Sourced<number>;
  /** Between nodes. */
  readonly link: Sourced<Link>;
  /** Within a node. */
  readonly local?: Sourced<Link>;
  /** The link that gradients take, where it is not the same. */
  readonly reduceLink?: Sourced<Link>;
  /** Between a GPU and its host, where optimizer states are kept there. */
  readonly hostLink?: Sourced<Link>;
  /** Whether a worker waits until its messages are sent. */
  readonly isBlocking: Sourced<boolean>;
  /** What the framework takes for each action and its messages. */
  readonly dispatchMs: Sourced<number>;
}

/** Bytes of a millisecond in a gigabyte of a second. */
export const GB_PER_S = 1e6;

/** A figure of the paper. */
export const stated = <T>(value: T, source: string): Sourced<T> => ({
  value,
  by: "stated",
  source,
});
/** A figure of a public document. */
export const documented = <T>(value: T, source: string): Sourced<T> => ({
  value,
  by: "document",
  source,
});
/** A figure that nobody states, and why it is this one. */
export const assumed = <T>(value: T, source: string): Sourced<T> => ({
  value,
  by: "assumed",
  source,
});
/** A figure that is set so that another of the paper comes out. */
export const fitted = <T>(value: T, source: string): Sourced<T> => ({
  value,
  by: "fitted",
  source,
});

/** Bytes that the context of CUDA, its libraries and fragments of the allocator leave. */
const USABLE = 0.93;

/** The bytes of a GPU that training can use. */
export const usable = (gigabytes: number, where: string) =>
  assumed(gigabytes * 2 ** 30 * USABLE, `${gigabytes} GB (${where}), of which 93 % can be used`);

/** Tokens with which a matrix product reaches half of its efficiency. */
export const TILE_TOKENS = assumed(
  128,
  "one tile of rows of a matrix product; below it most of the chip is idle",
);
