/**
 * The layers that decoder-only transformers share, for training and for generation with a cache.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import { cacheShape, type CacheSizes } from "./attention.ts";
import type { AnyLayer, Handed, Layer, LayerGraph, Tie, Values } from "./layer.ts";

const sharedBuilds = new WeakMap<AnyLayer["build"], number>();
let kinds = 0;

/** Returns a `build` whose graph depends on its input alone, not on the layer that has it. */
function shareBuild<Result extends Handed>(add: SubLayer<Result>): Layer<Value, Result>["build"] {
  const build = (g: LayerGraph, x: Value | undefined) => add(g, x!);
  sharedBuilds.set(build as AnyLayer["build"], kinds++);
  return build;
}

/** Returns the number of a `build` whose graph is built once for equal inputs; undefined for others. */
export const sharedKind = (build: AnyLayer["build"]): number | undefined => sharedBuilds.get(build);

/** Adds a sub-layer to the residual stream. */
type SubLayer<Result = Value> = (g: LayerGraph, x: Value) => Result;

/**
 * Returns blocks of two layers each, so that a stage may start within a block.
 *
 * @param prefix of the names of all parameters, before the number of the block.
 */
export const decoderBlocks = <Result extends Handed = Value>(
  count: number,
  prefix: string,
  attend: SubLayer<Result>,
  feedForward: SubLayer<Result>,
) => {
  const attention = shareBuild(attend), mlp = shareBuild(feedForward);
  return Array.from({ length: count }, (_, i) => {
    const block = `block ${i}`, shared = { block, prefix: `${prefix}${i}.` };
    return [
      { ...shared, name: `${block} attention`, build: attention },
      { ...shared, name: `${block} mlp`, build: mlp },
    ];
  }).flat();
};

/**
 * Returns the tokens of each slice of a sample.
 *
 * @throws {RangeError} when the tokens of a sample are not divisible by the number of slices.
 */
export function tokensOfSlice(model: string, seq: number, slices: number): number {
  const must = `the ${seq} tokens of a sample must be divisible by their number`;
  assertInput(seq % slices === 0, `cut ${model} into slices`, must, slices);
  return seq / slices;
}

/** One layer of a decoder. Layers with the same `build` differ only in their parameters. */
export interface CachedLayer {
  /** Prefix of the names of its parameters. */
  readonly prefix: string;
  /**
   * Builds its graph.
   *
   * @param x rows of the residual stream, [rows, hidden]; undefined for the embedding.
   * @returns its results by name: `y`, and for an attention the new `keys` and `values`.
   */
  build(g: LayerGraph, x: Value | undefined): Values;
}

/** The sizes and sub-layers of a decoder. */
interface DecoderParts {
  /** Width of the residual stream. */
  readonly hidden: number;
  /** Number of tokens in its context. */
  readonly seq: number;
  /** Number of token ids. */
  readonly vocab: number;
  /** Parameters that share one value. */
  readonly ties: readonly Tie[];
  /** Number of blocks. */
  readonly layers: number;
  /** Sizes of its caches. */
  readonly cache: CacheSizes;
  /** Prefixes of the names of parameters; that of a block precedes its number. */
  readonly prefixes: { readonly embedding: string; readonly block: string };
  /** Maps the fields `ids` and `positions` to the residual stream [rows, hidden]. */
  readonly embed: (g: LayerGraph, rows: number) => Value;
  /** Returns the results of an attention with a cache: `y`, `keys` and `values`. */
  readonly attend: SubLayer<Values>;
  readonly feedForward: SubLayer;
  /** Computes logits from the residual stream. */
  readonly logits: SubLayer;
}

/** Returns a decoder with a cache. */
export function cachedDecoder(parts: DecoderParts) {
  const { hidden, seq, vocab, ties, layers, cache, prefixes, embed, attend } = parts;
  const feedForward = (g: LayerGraph, x: Value): Values => ({ y: parts.feedForward(g, x) });
  const blocks = decoderBlocks(layers, prefixes.block, attend, feedForward);
  /**
   * The layers for `rows` tokens. Fields are `ids` and `positions`, int32 [rows], and `last`, int32
   * [1]: the row whose logits, [1, vocabulary], are returned, and the last cached row.
   *
   * One row extends a cache, more rows start one; see `cachedAttention`.
   */
  const layersOf = (rows: number): CachedLayer[] => [
    { prefix: prefixes.embedding, build: (g) => ({ y: embed(g, rows) }) },
    ...blocks,
    {
      prefix: "",
      build: (g, x) => ({
        y: parts.logits(g, rows === 1 ? x! : g.gather(x!, g.batch("last", [1], "i32"))),
      }),
    },
  ];
  // The shape is that of the keys, and of the values, of an attention.
  return { hidden, seq, vocab, cacheShape: cacheShape(cache), ties, layers: layersOf };
}

/** A decoder with a cache, for generation. */
export type CachedDecoder = ReturnType<typeof cachedDecoder>;
