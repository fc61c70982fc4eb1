/**
 * Attention of several heads, with all that decoders and encoders ask of it.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import { causalAttention, causalMask, MASKED } from "../causal_attention.ts";
import type { LayerGraph } from "../layer.ts";

/** Options of {@linkcode attention}. */
export interface AttentionOptions {
  /** Heads of the queries; must divide their width. */
  readonly heads: number;
  /**
   * Heads of keys and values, each for as many heads of the queries in a row (grouped queries, Ainslie
   * et al. 2023); must divide `heads`, and is `heads` unless given.
   */
  readonly keyValueHeads?: number;
  /** Whether a query attends to no later key; false unless given. */
  readonly causal?: boolean;
  /**
   * To which keys queries may attend: bool, or int32 where 0 is none, which broadcasts to [samples,
   * heads, queries, keys]; a row of samples with lengths of their own is [samples, 1, 1, keys].
   */
  readonly mask?: Value;
  /** Added to the scores, f32, which broadcasts to [samples, heads, queries, keys]. */
  readonly bias?: Value;
  /** Factor of the scores; 1/√width of a head unless given. */
  readonly scale?: number;
  /** Says queries and keys where they stand: [samples, heads, tokens, width] to as many. */
  readonly position?: (x: Value) => Value;
  /** Share of the weights that are left out in training; 0 unless given. */
  readonly dropout?: number;
}

/**
 * softmax(scale·q·kᵀ + bias)·v of each head (Vaswani et al. 2017, 3.2): queries [samples, queries,
 * heads·width], keys and values [samples, keys, keyValueHeads·width] give [samples, queries,
 * heads·width]; values may have a width of their own. It has no parameters: {@linkcode linear} makes q, k and v, and what comes of the result.
 *
 * Of slices of a sequence ({@linkcode LayerGraph.slice}) it is computed where it is causal and has no
 * mask, bias or scale.
 *
 * @throws {RangeError} when the heads do not divide a width, or the shapes do not match.
 * @throws {TypeError} when a slice attends to what its layer does not have.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { attention, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph();
 * const q = g.input("q", [2, 5, 32]), k = g.input("k", [2, 7, 16]), v = g.input("v", [2, 7, 16]);
 * const mask = g.reshape(g.batch("mask", [2, 7], "i32"), [2, 1, 1, 7]);
 * const y = attention(g, q, k, v, { heads: 4, keyValueHeads: 2, mask });
 * assert.deepEqual(y.shape, [2, 5, 32]);
 * assert.throws(() => attention(g, q, k, v, { heads: 4 }), /width of the keys must be 8/);
 * ```
 */
export function attention(
  g: LayerGraph,
  q: Value,
  k: Value,
  v: Value,
  options: AttentionOptions,
): Value {
  const { heads, keyValueHeads = heads, causal = false, position = (x: Value) => x } = options;
  checkShapes(q, k, v, { heads, keyValueHeads, causal });
  const queries = position(byHead(g, q, heads));
  // Later slices read what was computed, not what is repeated of it.
  const numberOf = g.contexts.length, label = numberOf === 0 ? "" : `.${numberOf}`;
  const keys = g.context(`keys${label}`, position(byHead(g, k, keyValueHeads)));
  const values = g.context(`values${label}`, byHead(g, v, keyValueHeads));
  const repeat = (some: readonly Value[]) => some.map((one) => repeatHeads(g, one, heads));
  const { mask, bias, scale, dropout = 0 } = options, { count } = g.slice;
  let mixed: Value;
  if (causal && !mask && !bias && scale === undefined) {
    mixed = causalAttention(
      g,
      queries,
      repeat(keys),
      repeat(values),
      count,
      (weights, place) => g.dropout(weights, dropout, place),
    );
  } else if (count === 1) {
    const [allKeys, allValues] = [keys, values].map((all) => repeat(all)[0]) as [Value, Value];
    mixed = g.matmul(g.dropout(weightsOf(g, queries, allKeys, options), dropout), allValues);
  } else {
    throw new TypeError(
      "Cannot cut attention into slices: it must be causal, with no mask, bias or scale",
    );
  }
  const [samples, , tokens, width] = mixed.shape as [number, number, number, number];
  return g.reshape(g.transpose(mixed, [0, 2, 1, 3]), [samples, tokens, heads * width]);
}

/** By how much each query mixes the values of the keys. */
function weightsOf(
  g: LayerGraph,
  queries: Value,
  keys: Value,
  { causal, mask, bias, scale = 1 / Math.sqrt(queries.shape[3]!) }: AttentionOptions,
): Value {
  let scores = g.matmul(queries, keys, { transB: true, alpha: scale });
  if (bias) scores = g.add(scores, bias);
  if (mask) {
    const isSeen = g.cast(mask, "bool");
    scores = g.add(scores, g.where(isSeen, g.scalar(0), g.scalar(MASKED)));
  }
  if (causal) {
    const tokens = keys.shape[2]!;
    scores = g.add(scores, g.constant(causalMask(tokens), [1, 1, tokens, tokens]));
  }
  return g.softmax(scores);
}

/** [samples, tokens, heads·width] as [samples, heads, tokens, width]. */
function byHead(g: LayerGraph, x: Value, heads: number): Value {
  const [samples, tokens, width] = x.shape as [number, number, number];
  return g.transpose(g.reshape(x, [samples, tokens, heads, width / heads]), [0, 2, 1, 3]);
}

/** Each head as often in a row as queries have heads for it. */
function repeatHeads(g: LayerGraph, x: Value, heads: number): Value {
  const [samples, own, tokens, width] = x.shape as [number, number, number, number];
  if (own === heads) return x;
  const apart = g.reshape(x, [samples, own, 1, tokens, width]);
  const repeated = g.expand(apart, [samples, own, heads / own, tokens, width]);
  return g.reshape(repeated, [samples, heads, tokens, width]);
}

function checkShapes(
  q: Value,
  k: Value,
  v: Value,
  { heads, keyValueHeads, causal }: { heads: number; keyValueHeads: number; causal: boolean },
): void {
  const must = (holds: boolean, what: string, received: unknown) => {
    if (!holds) throw new RangeError(`Cannot attend: ${what}, received ${received}`);
  };
  const shapes = [q, k, v].map(({ shape }) => shape), all = shapes.map((one) => `[${one}]`);
  must(
    shapes.every(({ length }) => length === 3),
    "queries, keys and values must be [samples, tokens, width]",
    all.join(", "),
  );
  const [[samples, tokens, width], keys, values] = shapes as [number[], number[], number[]];
  const isDivisor = (part: number, whole: number) => part >= 1 && Number.isInteger(whole / part);
  must(isDivisor(heads, width!), `heads must divide the width of the queries, ${width}`, heads);
  must(isDivisor(keyValueHeads, heads), `keyValueHeads must divide heads, ${heads}`, keyValueHeads);
  const ofHead = width! / heads;
  must(
    keys[2] === ofHead * keyValueHeads,
    `the width of the keys must be ${ofHead} for each of their ${keyValueHeads} heads`,
    keys[2],
  );
  must(
    isDivisor(keyValueHeads, values[2]!),
    "keyValueHeads must divide the width of the values",
    values[2],
  );
  must(
    keys[0] === samples && values[0] === samples && values[1] === keys[1],
    "queries, keys and values must be of as many samples, keys and values of as many tokens",
    all.join(", "),
  );
  must(!causal || keys[1] === tokens, `keys must be as many as queries, ${tokens}`, keys[1]);
}
