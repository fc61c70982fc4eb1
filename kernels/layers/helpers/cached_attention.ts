/**
 * Causal attention that goes on from a cache of the keys and values of the tokens before.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import { causalMask, MASKED } from "../causal_attention.ts";
import type { LayerGraph } from "../layer.ts";

/** The sizes of a cache. */
export interface CacheSizes {
  /** Heads of keys and values. */
  readonly heads: number;
  /** Positions that it has. */
  readonly seq: number;
  /** Width of a head. */
  readonly width: number;
}

/** What an attention computes. */
export interface CachedAttention {
  /** What the values are mixed to, [rows, query heads·width]. */
  readonly mixed: Value;
  /** The keys that are to be kept, of {@linkcode cacheShape}. */
  readonly keys: Value;
  /** The values that are to be kept. */
  readonly values: Value;
}

/** The shape of a cache: for each head a row for each position. */
export const cacheShape = ({ heads, seq, width }: CacheSizes): [number, number] => [
  heads * seq,
  width,
];

/**
 * Attention of queries, keys and values of `rows` tokens: [heads, rows, width] each, where queries may
 * have several heads for each of the keys and values.
 *
 * One row goes on from a cache, the inputs `keys` and `values` of the layer: those of the rows before
 * its position, and zeros. More rows begin at position 0, and with them a cache. It reads the fields
 * `positions`, int32 [rows], and `last`, int32 [1], the last row that is kept.
 */
export function cachedAttention(
  g: LayerGraph,
  [q, k, v]: readonly [Value, Value, Value],
  sizes: CacheSizes,
): CachedAttention {
  const [heads, rows, width] = q.shape as [number, number, number], goesOn = rows === 1;
  const { keys, values, mask } = goesOn ? withCache(g, k, v, sizes) : {
    keys: k,
    values: v,
    mask: g.constant(causalMask(rows), [1, rows, rows]),
  };
  const scores = g.matmul(q, repeatHeads(g, keys, heads), {
    transB: true,
    alpha: 1 / Math.sqrt(width),
  });
  const mixed = g.matmul(g.softmax(g.add(scores, mask)), repeatHeads(g, values, heads));
  const kept = (all: Value) =>
    g.reshape(goesOn ? all : newCache(g, all, sizes.seq), cacheShape(sizes));
  return {
    mixed: g.reshape(g.transpose(mixed, [1, 0, 2]), [rows, heads * width]),
    keys: kept(keys),
    values: kept(values),
  };
}

/** [rows, heads·width] as [heads, rows, width]. */
export function byHead(g: LayerGraph, x: Value, heads: number): Value {
  const [rows, width] = x.shape as [number, number];
  return g.transpose(g.reshape(x, [rows, heads, width / heads]), [1, 0, 2]);
}

/** A field of int32, read once. */
export function fieldOf(g: LayerGraph, name: string, rows: number): Value {
  const known = g.fields.find(({ spec }) => spec.name === name);
  return known?.value ?? g.batch(name, [rows], "i32");
}

/** Each head of [heads, tokens, width] as often in a row as queries have heads for it. */
function repeatHeads(g: LayerGraph, x: Value, heads: number): Value {
  const [own, tokens, width] = x.shape as [number, number, number];
  if (own === heads) return x;
  const apart = g.reshape(x, [own, 1, tokens, width]);
  const repeated = g.expand(apart, [own, heads / own, tokens, width]);
  return g.reshape(repeated, [heads, tokens, width]);
}

const indexes = (g: LayerGraph, count: number, shape: readonly number[], step = 1) =>
  g.constant(Int32Array.from({ length: count }, (_, i) => i * step), shape, "i32");

/** Keys and values of all tokens, [heads, tokens, width], and what is added to the scores of each. */
interface Attended {
  readonly keys: Value;
  readonly values: Value;
  readonly mask: Value;
}

/** The cache with the row at `positions`, which was zero, as are all behind it. */
function withCache(g: LayerGraph, k: Value, v: Value, sizes: CacheSizes): Attended {
  const { heads, seq, width } = sizes;
  const position = fieldOf(g, "positions", 1);
  const row = g.add(indexes(g, heads, [heads], seq), position);
  const added = (name: string, part: Value) => {
    const cache = g.input(name, cacheShape(sizes));
    const all = g.scatterAdd(cache, row, g.reshape(part, [heads, width]));
    return g.reshape(all, [heads, seq, width]);
  };
  const isBehind = g.greater(indexes(g, seq, [1, 1, seq]), position);
  return {
    keys: added("keys", k),
    values: added("values", v),
    mask: g.where(isBehind, g.scalar(MASKED), g.scalar(0)),
  };
}

/** A cache of the rows up to `last`, and zeros. */
function newCache(g: LayerGraph, part: Value, seq: number): Value {
  const [heads, rows, width] = part.shape as [number, number, number];
  const isBehind = g.greater(indexes(g, rows, [1, rows, 1]), fieldOf(g, "last", 1));
  const own = g.where(isBehind, g.scalar(0), part);
  if (rows === seq) return own;
  return g.concat([own, g.expand(g.scalar(0), [heads, seq - rows, width])], 1);
}
