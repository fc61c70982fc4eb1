/**
 * GPT-2 for generation: the layers of {@linkcode gpt2}, with the keys and values of the tokens before
 * in a cache, so that one more token costs one row.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import { linear } from "./affine.ts";
import { causalMask, MASKED } from "./causal_attention.ts";
import { checkGpt2, feedForward, type Gpt2Config } from "./gpt2.ts";
import { logits } from "./gpt2_head.ts";
import { layerNorm } from "./helpers/norms.ts";
import type { LayerGraph } from "./layer.ts";

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

/**
 * The layers for `rows` tokens. Fields are `ids` and `positions`, int32 [rows], and `last`, int32
 * [1]: the row whose logits, [1, vocabulary], are wanted, and the last one that is kept.
 *
 * One row goes on from a cache, the inputs `keys` and `values` of {@linkcode cacheShape}: those of the
 * rows before its position, and zeros. More rows begin at position 0, and with them a cache.
 *
 * @throws {RangeError} as {@linkcode gpt2}.
 */
export function cachedGpt2(config: Gpt2Config, rows: number): CachedLayer[] {
  checkGpt2(config, 1);
  const evaluated = { ...config, dropout: 0 };
  const blocks = Array.from({ length: config.layers }, (_, i): CachedLayer[] => {
    const prefix = `transformer.h.${i}.`;
    return [
      { kind: "attention", prefix, build: (g, x) => attention(g, x!, config, rows) },
      { kind: "mlp", prefix, build: (g, x) => ({ y: feedForward(g, x!, evaluated) }) },
    ];
  });
  return [
    { kind: "embedding", prefix: "transformer.", build: (g) => embedding(g, config, rows) },
    ...blocks.flat(),
    {
      kind: "head",
      prefix: "",
      build: (g, x) => {
        const row = rows === 1 ? x! : g.gather(x!, lastOf(g));
        return { y: logits(g, row, config) };
      },
    },
  ];
}

function embedding(g: LayerGraph, { hidden, seq, vocab }: Gpt2Config, rows: number) {
  const rowsOf = (table: string, size: number, field: string) =>
    g.gather(g.parameter(table, [size, hidden]), g.batch(field, [rows], "i32"));
  return { y: g.add(rowsOf("wte.weight", vocab, "ids"), rowsOf("wpe.weight", seq, "positions")) };
}

/** Keys and values of all tokens, [heads, tokens, width], and what is added to the scores of each. */
interface Attended {
  readonly keys: Value;
  readonly values: Value;
  readonly mask: Value;
}

function attention(g: LayerGraph, x: Value, config: Gpt2Config, rows: number) {
  const { hidden, heads } = config, width = hidden / heads;
  const byHead = (part: Value) => g.transpose(g.reshape(part, [rows, heads, width]), [1, 0, 2]);
  const [q, k, v] = g.split(
    linear(g, layerNorm(g, x, { name: "ln_1" }), "attn.c_attn", 3 * hidden),
    1,
    3,
  )
    .map(byHead) as [Value, Value, Value];
  const goesOn = rows === 1;
  const { keys, values, mask } = goesOn ? withCache(g, k, v, config) : {
    keys: k,
    values: v,
    mask: g.constant(causalMask(rows), [1, rows, rows]),
  };
  const scores = g.matmul(q, keys, { transB: true, alpha: 1 / Math.sqrt(width) });
  const mixed = g.matmul(g.softmax(g.add(scores, mask)), values);
  const joined = g.reshape(g.transpose(mixed, [1, 0, 2]), [rows, hidden]);
  const kept = (all: Value) =>
    g.reshape(goesOn ? all : newCache(g, all, config), cacheShape(config));
  return {
    y: g.add(x, linear(g, joined, "attn.c_proj", hidden)),
    keys: kept(keys),
    values: kept(values),
  };
}

/** The shape of a cache: for each head a row for each position. */
export const cacheShape = ({ heads, seq, hidden }: Gpt2Config): [number, number] => [
  heads * seq,
  hidden / heads,
];

const indexes = (g: LayerGraph, count: number, shape: readonly number[], step = 1) =>
  g.constant(Int32Array.from({ length: count }, (_, i) => i * step), shape, "i32");

/** The cache with the row at `positions`, which was zero, as are all behind it. */
function withCache(g: LayerGraph, k: Value, v: Value, config: Gpt2Config): Attended {
  const { heads, seq, hidden } = config, width = hidden / heads;
  const position = g.batch("positions", [1], "i32");
  const row = g.add(indexes(g, heads, [heads], seq), position);
  const added = (name: string, part: Value) => {
    const cache = g.input(name, cacheShape(config));
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
function newCache(g: LayerGraph, part: Value, { heads, seq }: Gpt2Config): Value {
  const [, rows, width] = part.shape as [number, number, number];
  const isBehind = g.greater(indexes(g, rows, [1, rows, 1]), lastOf(g));
  const own = g.where(isBehind, g.scalar(0), part);
  if (rows === seq) return own;
  return g.concat([own, g.expand(g.scalar(0), [heads, seq - rows, width])], 1);
}

/** The field `last`, read once. */
function lastOf(g: LayerGraph): Value {
  const known = g.fields.find(({ spec }) => spec.name === "last");
  return known?.value ?? g.batch("last", [1], "i32");
}
