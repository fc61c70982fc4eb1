/**
 * Layers for generation: those of a decoder, with the keys and values of the tokens before in a cache,
 * so that one more token costs one row.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import type { LayerGraph, Tie } from "../layer.ts";

/** One layer. Those of one kind compute the same, with parameters of their own. */
export interface CachedLayer {
  /** What it is: an embedding, an attention, a feed-forward network or the head. */
  readonly kind: "embedding" | "attention" | "mlp" | "head";
  /** Put before the names of its parameters. */
  readonly prefix: string;
  /**
   * Builds its graph.
   *
   * @param x rows of the residual stream, [rows, hidden]; of the embedding undefined.
   * @returns what it computes, by name: `y`, and of an attention the `keys` and `values` to be kept.
   */
  build(g: LayerGraph, x: Value | undefined): Readonly<Record<string, Value>>;
}

/** A decoder as generation computes it. */
export interface CachedDecoder {
  /** Width of the residual stream. */
  readonly hidden: number;
  /** Tokens that it sees. */
  readonly seq: number;
  /** Number of token ids. */
  readonly vocab: number;
  /** The shape of the keys, and of the values, of an attention. */
  readonly cacheShape: readonly [rows: number, width: number];
  /** Parameters that are one. */
  readonly ties: readonly Tie[];
  /**
   * The layers for `rows` tokens. Fields are `ids` and `positions`, int32 [rows], and `last`, int32
   * [1]: the row whose logits, [1, vocabulary], are wanted, and the last one that is kept.
   *
   * One row goes on from a cache, more rows begin one: `cachedAttention` says how.
   */
  layers(rows: number): readonly CachedLayer[];
}
