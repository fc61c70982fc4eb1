/**
 * Llama for generation: the layers of {@linkcode llama}, with a cache.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import {
  byHead,
  cachedAttention,
  cacheShape,
  fieldOf,
} from "../layers/helpers/cached_attention.ts";
import type { CachedDecoder, CachedLayer } from "../layers/helpers/cached_layer.ts";
import { rotary } from "../layers/helpers/rotary.ts";
import type { LayerGraph } from "../layers/layer.ts";
import {
  addMixed,
  embed,
  feedForward,
  type LlamaConfig,
  type LlamaSizes,
  llamaSizes,
  llamaTies,
  logits,
  projections,
} from "./llama.ts";

/**
 * A Llama with a cache.
 *
 * @throws {RangeError} as {@linkcode llama}.
 */
export function cachedLlama(config: LlamaConfig): CachedDecoder {
  const sizes = llamaSizes(config), { hidden, seq, vocab } = sizes;
  return {
    ...{ hidden, seq, vocab },
    cacheShape: cacheShape(cacheOf(sizes)),
    ties: llamaTies(sizes),
    layers: (rows) => layersFor(sizes, rows),
  };
}

const cacheOf = ({ keyValueHeads: heads, seq, hidden, heads: all }: LlamaSizes) => ({
  heads,
  seq,
  width: hidden / all,
});

function layersFor(sizes: LlamaSizes, rows: number): CachedLayer[] {
  const blocks = Array.from({ length: sizes.layers }, (_, i): CachedLayer[] => {
    const prefix = `model.layers.${i}.`;
    return [
      { kind: "attention", prefix, build: (g, x) => attend(g, x!, sizes) },
      { kind: "mlp", prefix, build: (g, x) => ({ y: feedForward(g, x!, sizes) }) },
    ];
  });
  return [
    {
      kind: "embedding",
      prefix: "model.",
      build: (g) => ({ y: embed(g, g.batch("ids", [rows], "i32"), sizes) }),
    },
    ...blocks.flat(),
    {
      kind: "head",
      prefix: "",
      build: (g, x) => {
        const row = rows === 1 ? x! : g.gather(x!, fieldOf(g, "last", 1));
        return { y: logits(g, row, sizes) };
      },
    },
  ];
}

function attend(g: LayerGraph, x: Value, sizes: LlamaSizes) {
  const { heads, keyValueHeads, seq, ropeTheta: theta } = sizes;
  const positions = { at: fieldOf(g, "positions", x.shape[0]!), count: seq };
  const turned = (one: Value, count: number) =>
    rotary(g, byHead(g, one, count), { theta, positions });
  const [q, k, v] = projections(g, x, sizes);
  const { mixed, keys, values } = cachedAttention(
    g,
    [turned(q, heads), turned(k, keyValueHeads), byHead(g, v, keyValueHeads)],
    cacheOf(sizes),
  );
  return { y: addMixed(g, x, mixed), keys, values };
}
