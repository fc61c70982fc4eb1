/**
 * Multi-head attention of encoders and decoders, with or without a cache, and rotary positions.
 *
 * @module
 */

import type { Graph } from "../ops/graph.ts";
import type { Value } from "../graph/value.ts";
import { assertInput } from "../errors.ts";
import { broadcastShape, sameShape } from "../graph/shapes.ts";
import type { LayerGraph, MaskPlace } from "./layer.ts";

/** Score of a masked token: exp(−1e30) is exactly 0. */
export const MASKED = -1e30;

/** Returns the causal mask: 0 for a token itself and those before it, otherwise {@linkcode MASKED}. */
export function causalMask(seq: number): Float32Array<ArrayBuffer> {
  const mask = new Float32Array(seq * seq);
  for (let i = 0; i < seq; i++) mask.fill(MASKED, i * seq + i + 1, (i + 1) * seq);
  return mask;
}

/** Bounds of the number of queries in a part. */
const QUERIES = { most: 128, least: 64 } as const;

/** Returns the smallest allowed number of parts for the queries of a whole sequence. */
export function partsOf(seq: number): number {
  for (let parts = Math.ceil(seq / QUERIES.most); parts * QUERIES.least <= seq; parts++) {
    if (seq % parts === 0) return parts;
  }
  return 1;
}

/** Returns the greatest common divisor. */
const gcd = (a: number, b: number): number => b === 0 ? a : gcd(b, a % b);

/** Applies dropout to the weights of a part, with its place in the whole sequence. */
type PlaceOfWeights = (weights: Value, place: MaskPlace) => Value;

/**
 * Causal attention: queries, keys and values are [B, heads, tokens, width], and so is the result.
 *
 * [Note: attention in parts] Half of all scores are masked. The queries of long samples are
 * therefore cut into parts, each of which reads the keys up to its own end: with n parts, (n +
 * 1)/2n of the scores are computed and stored. A row of scores is not cut, so the softmax is exact.
 * Measured on native with 12 heads of 64, forward and backward of an attention with its products:
 * −6 to −11 % at T = 256, −10 % at 512, −19 to −26 % at 1024.
 *
 * Parts of a slice are within those of the whole sequence, so that a mask of its dropout is a box in
 * one of theirs.
 *
 * @param queries of all tokens, or of a slice.
 * @param keys of the slices up to that of the queries, in order; one for a whole sequence.
 * @param slices into which the sequence is cut.
 * @param dropout of the attention weights.
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

/** Options of {@linkcode attention}. */
export interface AttentionOptions {
  /** Heads of the queries; must divide their width. */
  readonly heads: number;
  /**
   * Heads of keys and values, each shared by consecutive query heads (grouped queries, Ainslie et al.
   * 2023); must divide `heads`. Default `heads`.
   */
  readonly keyValueHeads?: number;
  /** Restricts each query to keys up to its position. Default false. */
  readonly causal?: boolean;
  /**
   * Keys that queries may attend to: bool, or int32 where 0 is masked, broadcast to [samples, heads,
   * queries, keys]. For samples of different lengths it is [samples, 1, 1, keys].
   */
  readonly mask?: Value;
  /** Added to the scores, f32, broadcast to [samples, heads, queries, keys]. */
  readonly bias?: Value;
  /** Factor of the scores. Default 1/√(width of a head). */
  readonly scale?: number;
  /** Adds positions to queries and keys, [samples, heads, tokens, width]. */
  readonly position?: (x: Value) => Value;
  /** Dropout probability of the attention weights. Default 0. */
  readonly dropout?: number;
}

/**
 * softmax(scale·q·kᵀ + bias)·v of each head (Vaswani et al. 2017, 3.2): queries [samples, queries,
 * heads·width], keys and values [samples, keys, keyValueHeads·width] give [samples, queries,
 * heads·width]; values may have another width. It has no parameters: use {@linkcode linear} for q, k
 * and v, and for the result.
 *
 * Slices of a sequence ({@linkcode LayerGraph.slice}) require causal attention without mask, bias or
 * scale.
 *
 * @throws {RangeError} when the heads do not divide a width, or the shapes do not match.
 * @throws {TypeError} when a slice needs values that its layer does not have.
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
  // Later slices read keys and values before these are repeated.
  const numberOf = g.contexts.length, label = numberOf === 0 ? "" : `.${numberOf}`;
  const keys = g.context(`keys${label}`, position(byHead(g, k, keyValueHeads)));
  const values = g.context(`values${label}`, byHead(g, v, keyValueHeads));
  const repeat = (some: readonly Value[]) => some.map((one) => repeatHeads(g, one, heads));
  const { mask, bias, scale, dropout = 0 } = options, { count } = g.part;
  let mixed: Value;
  const isPlain = causal && !mask && !bias && scale === undefined;
  const must = "it must be causal, with no mask, bias or scale";
  if (!isPlain && count > 1) throw new TypeError(`Cannot cut attention into slices: ${must}`);
  if (isPlain) {
    const drop: PlaceOfWeights = (weights, place) => g.dropout(weights, dropout, place);
    mixed = causalAttention(g, queries, repeat(keys), repeat(values), count, drop);
  } else {
    const [allKeys, allValues] = [keys, values].map((all) => repeat(all)[0]) as [Value, Value];
    mixed = g.matmul(g.dropout(weightsOf(g, queries, allKeys, options), dropout), allValues);
  }
  const [samples, , tokens, width] = mixed.shape as [number, number, number, number];
  return g.reshape(g.transpose(mixed, [0, 2, 1, 3]), [samples, tokens, heads * width]);
}

/** Returns the attention weights of queries and keys. */
function weightsOf(
  g: LayerGraph,
  queries: Value,
  keys: Value,
  { causal, mask, bias, scale = 1 / Math.sqrt(queries.shape[3]!) }: AttentionOptions,
): Value {
  let scores = g.matmul(queries, keys, { transB: true, alpha: scale });
  for (const { shape } of [mask, bias].filter((one) => one !== undefined)) {
    const fits = sameShape(broadcastShape(shape, scores.shape), scores.shape);
    const must = `mask and bias must broadcast to [${scores.shape}]`;
    assertInput(fits, "attend", must, `[${shape}]`);
  }
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

/** Reshapes [..., tokens, heads·width] to [..., heads, tokens, width]. */
export function byHead(g: LayerGraph, x: Value, heads: number): Value {
  const outer = x.shape.slice(0, -1), axis = outer.length;
  const apart = g.reshape(x, [...outer, heads, x.shape.at(-1)! / heads]);
  return g.transpose(apart, [...outer.keys()].slice(0, -1).concat(axis, axis - 1, axis + 1));
}

/** Repeats each head of [..., heads, tokens, width] for the consecutive query heads that share it. */
function repeatHeads(g: LayerGraph, x: Value, heads: number): Value {
  const outer = x.shape.slice(0, -3);
  const [own, tokens, width] = x.shape.slice(-3) as [number, number, number];
  if (own === heads) return x;
  const apart = g.reshape(x, [...outer, own, 1, tokens, width]);
  const repeated = g.expand(apart, [...outer, own, heads / own, tokens, width]);
  return g.reshape(repeated, [...outer, heads, tokens, width]);
}

function checkShapes(
  q: Value,
  k: Value,
  v: Value,
  { heads, keyValueHeads, causal }: { heads: number; keyValueHeads: number; causal: boolean },
): void {
  const must = (holds: boolean, what: string, received: unknown) =>
    assertInput(holds, "attend", what, received);
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
    "queries, keys and values must have the same samples, keys and values the same tokens",
    all.join(", "),
  );
  must(!causal || keys[1] === tokens, `the number of keys must be ${tokens}`, keys[1]);
}

/** The sizes of a cache. */
export interface CacheSizes {
  /** Heads of keys and values. */
  readonly heads: number;
  /** Number of positions. */
  readonly seq: number;
  /** Width of a head. */
  readonly width: number;
}

/** Returns the shape of a cache: for each head one row per position. */
export const cacheShape = (
  { heads, seq, width }: CacheSizes,
): [number, number] => [heads * seq, width];

/**
 * Attention of `rows` tokens with queries, keys and values [heads, rows, width], where several query
 * heads may share a head of keys and values.
 *
 * One row extends a cache, the inputs `keys` and `values` of the layer: the rows before its position,
 * and zeros. More rows start at position 0 with a new cache. It reads the fields `positions`, int32
 * [rows], and `last`, int32 [1], the last row that is cached.
 *
 * @returns `mixed` [rows, query heads·width], and the new `keys` and `values` of
 * {@linkcode cacheShape}.
 */
export function cachedAttention(
  g: LayerGraph,
  [q, k, v]: readonly [Value, Value, Value],
  sizes: CacheSizes,
): { readonly mixed: Value; readonly keys: Value; readonly values: Value } {
  const [heads, rows, width] = q.shape as [number, number, number], isExtended = rows === 1;
  const { keys, values, mask } = isExtended ? withCache(g, k, v, sizes) : {
    keys: k,
    values: v,
    mask: g.constant(causalMask(rows), [1, rows, rows]),
  };
  const options = { transB: true, alpha: 1 / Math.sqrt(width) };
  const scores = g.matmul(q, repeatHeads(g, keys, heads), options);
  const mixed = g.matmul(g.softmax(g.add(scores, mask)), repeatHeads(g, values, heads));
  const kept = (all: Value) =>
    g.reshape(isExtended ? all : newCache(g, all, sizes.seq), cacheShape(sizes));
  return {
    mixed: g.reshape(g.transpose(mixed, [1, 0, 2]), [rows, heads * width]),
    keys: kept(keys),
    values: kept(values),
  };
}

const indexes = (g: LayerGraph, count: number, shape: readonly number[], step = 1) =>
  g.constant(Int32Array.from({ length: count }, (_, i) => i * step), shape, "i32");

/**
 * Adds the row at `positions` to the cache, whose rows from there on are zero.
 *
 * @returns keys and values [heads, tokens, width], and the mask that is added to the scores.
 */
function withCache(g: LayerGraph, k: Value, v: Value, sizes: CacheSizes) {
  const { heads, seq, width } = sizes;
  const position = g.batch("positions", [1], "i32");
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

/** Returns a cache with the rows up to `last`, and zeros. */
function newCache(g: LayerGraph, part: Value, seq: number): Value {
  const [heads, rows, width] = part.shape as [number, number, number];
  const isBehind = g.greater(indexes(g, rows, [1, rows, 1]), g.batch("last", [1], "i32"));
  const own = g.where(isBehind, g.scalar(0), part);
  if (rows === seq) return own;
  return g.concat([own, g.expand(g.scalar(0), [heads, seq - rows, width])], 1);
}

/** Options of {@linkcode rotary}. */
export interface RotaryOptions {
  /** Base of the angles. Default 10000. */
  readonly theta?: number;
  /** Positions of the tokens, int32 [tokens], and their number. Default: consecutive. */
  readonly positions?: { readonly at: Value; readonly count: number };
}

/**
 * Rotates queries or keys by angles proportional to their position, so that a score depends on the
 * distance of two tokens: element i of the first half of x [..., tokens, width] and element i of the
 * second are rotated together, at position p by p·theta^(−2i ÷ width). These are the pairs of Hugging
 * Face's models; the paper pairs neighbours.
 *
 * In a slice of a sequence the first token has its position in the whole.
 *
 * @throws {RangeError} when the width is odd.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { attention, LayerGraph, rotary } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), x = g.input("x", [2, 5, 32]);
 * const y = attention(g, x, x, x, { heads: 4, causal: true, position: (one) => rotary(g, one) });
 * assert.deepEqual(y.shape, [2, 5, 32]);
 * assert.throws(() => rotary(g, g.input("odd", [2, 4, 5, 7])), /must be even, received 7/);
 * ```
 */
export function rotary(
  g: LayerGraph,
  x: Value,
  { theta = 10_000, positions }: RotaryOptions = {},
): Value {
  const [tokens, width] = x.shape.slice(-2) as [number, number], half = width / 2;
  assertInput(Number.isInteger(half), "turn by positions", "the width must be even", width);
  const first = positions ? 0 : g.part.index * tokens, rows = positions?.count ?? tokens;
  const table = (turn: (angle: number) => number) => {
    const angles = Float32Array.from(
      { length: rows * half },
      (_, i) => turn((first + Math.floor(i / half)) * theta ** (-2 * (i % half) / width)),
    );
    const all = g.constant(angles, [rows, half]);
    return positions ? g.gather(all, positions.at) : all;
  };
  const cos = table(Math.cos), sin = table(Math.sin);
  const [a, b] = g.split(x, -1, 2) as [Value, Value];
  return g.concat([g.sub(g.mul(a, cos), g.mul(b, sin)), g.add(g.mul(b, cos), g.mul(a, sin))], -1);
}
