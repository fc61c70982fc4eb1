/**
 * Causal attention: each token attends to itself and those before it.
 *
 * @module
 */

import type { Graph } from "../graph/graph.ts";
import type { Value } from "../graph/value.ts";
import type { MaskPlace } from "./layer.ts";

/** Blocks attend to no later token: exp(−1e30) is exactly 0. */
export const MASKED = -1e30;

/** Zero where a token may attend to another: itself and those before it. */
export function causalMask(seq: number): Float32Array<ArrayBuffer> {
  const mask = new Float32Array(seq * seq);
  for (let i = 0; i < seq; i++) mask.fill(MASKED, i * seq + i + 1, (i + 1) * seq);
  return mask;
}

/** The most queries of a part, and the least. */
const QUERIES = { most: 128, least: 64 } as const;

/** In how many parts the queries of a whole sequence are taken: as few as can be. */
export function partsOf(seq: number): number {
  for (let parts = Math.ceil(seq / QUERIES.most); parts * QUERIES.least <= seq; parts++) {
    if (seq % parts === 0) return parts;
  }
  return 1;
}

/** The greatest number that divides both. */
const gcd = (a: number, b: number): number => b === 0 ? a : gcd(b, a % b);

/** Where the weights of a part of the queries lie among those of the whole sequence. */
export type PlaceOfWeights = (weights: Value, place: MaskPlace) => Value;

/**
 * What tokens make of the values of those to which they attend: queries, keys and values are
 * [B, heads, tokens, width], and so is the result.
 *
 * [Note: attention in parts] Half of all scores are masked. Of long samples queries are therefore
 * taken in parts, each of which meets the keys up to its own end: of n parts (n + 1)/2n of the scores
 * are computed and kept. A row of scores stays whole, so softmax is what it is by definition.
 * Measured on native with 12 heads of 64, forward and backward of an attention with its products:
 * −6 to −11 % at T = 256, −10 % at 512, −19 to −26 % at 1024.
 *
 * Parts of a slice lie within those of the whole sequence, so that a mask of its dropout is a box in
 * one of theirs.
 *
 * @param queries of all tokens, or of a slice.
 * @param keys of the slices up to that of the queries, in order; of a whole sequence one.
 * @param slices into which the sequence is cut.
 * @param dropout of the weights by which values are mixed.
 */
export function causalAttention(
  g: Graph,
  queries: Value,
  keys: readonly Value[],
  values: readonly Value[],
  slices = 1,
  dropout: PlaceOfWeights = (weights) => weights,
): Value {
  const [batch, heads, tokens, width] = queries.shape as [number, number, number, number];
  const seq = tokens * slices, wholePart = seq / partsOf(seq);
  const size = gcd(tokens, wholePart), parts = tokens / size;
  const own = g.constant(causalMask(size), [1, 1, size, size]);
  const cut = (x: Value) => parts === 1 ? [x] : g.split(x, 2, parts);
  const join = (some: readonly Value[], axis: number) =>
    some.length === 1 ? some[0]! : g.concat(some, axis);
  const k = keys.flatMap(cut), v = values.flatMap(cut), first = k.length - parts;
  const mixtures = cut(queries).map((some, i) => {
    const before = (first + i) * size, number = Math.floor(before / wholePart);
    const upTo = (all: readonly Value[]) => join(all.slice(0, first + i + 1), 2);
    const scores = g.matmul(some, upTo(k), { transB: true, alpha: 1 / Math.sqrt(width) });
    const seen = before === 0 ? [] : [g.expand(g.scalar(0), [1, 1, size, before])];
    const weights = g.softmax(g.add(scores, join([...seen, own], 3)));
    const box = {
      whole: [batch, heads, wholePart, (number + 1) * wholePart],
      from: [0, 0, before - number * wholePart, 0],
      size: [batch, heads, size, before + size],
    };
    return g.matmul(dropout(weights, { number, box }), upTo(v));
  });
  return join(mixtures, 2);
}
