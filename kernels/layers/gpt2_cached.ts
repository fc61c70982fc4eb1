/**
 * GPT-2 for generation: the layers of {@linkcode gpt2}, with a cache.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import { linear } from "./affine.ts";
import type { CachedDecoder, CachedLayer } from "./helpers/cached_layer.ts";
import { checkGpt2, feedForward, type Gpt2Config, gpt2Ties } from "./gpt2.ts";
import { logits } from "./gpt2_head.ts";
import { byHead, cachedAttention, cacheShape, fieldOf } from "./helpers/cached_attention.ts";
import { layerNorm } from "./helpers/norms.ts";
import type { LayerGraph } from "./layer.ts";

/**
 * A GPT-2 with a cache.
 *
 * @throws {RangeError} as {@linkcode gpt2}.
 */
export function cachedGpt2(config: Gpt2Config): CachedDecoder {
  checkGpt2(config, 1);
  const { hidden, seq, vocab } = config;
  return {
    ...{ hidden, seq, vocab },
    cacheShape: cacheShape(cacheOf(config)),
    ties: gpt2Ties(config),
    layers: (rows) => layersFor(config, rows),
  };
}

const cacheOf = ({ heads, seq, hidden }: Gpt2Config) => ({ heads, seq, width: hidden / heads });

function layersFor(config: Gpt2Config, rows: number): CachedLayer[] {
  const evaluated = { ...config, dropout: 0 };
  const blocks = Array.from({ length: config.layers }, (_, i): CachedLayer[] => {
    const prefix = `transformer.h.${i}.`;
    return [
      { kind: "attention", prefix, build: (g, x) => attention(g, x!, config) },
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
        const row = rows === 1 ? x! : g.gather(x!, fieldOf(g, "last", 1));
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

function attention(g: LayerGraph, x: Value, config: Gpt2Config) {
  const { hidden, heads } = config;
  const qkv = linear(g, layerNorm(g, x, { name: "ln_1" }), "attn.c_attn", 3 * hidden);
  const parts = g.split(qkv, 1, 3).map((part) => byHead(g, part, heads));
  const { mixed, keys, values } = cachedAttention(
    g,
    parts as [Value, Value, Value],
    cacheOf(config),
  );
  return { y: g.add(x, linear(g, mixed, "attn.c_proj", hidden)), keys, values };
}
